//! What is taken out, and what stays.

use super::*;

#[test]
fn tokens_keys_and_certificates_are_taken_out() {
    let jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ijc4In0.eyJpc3MiOiJrdWJl.c2ln";
    for (text, expected) in [
        (format!("token {jwt} refused"), "token [redacted] refused"),
        (
            format!("Authorization: Bearer {jwt}"),
            "Authorization: Bearer [redacted]",
        ),
        (
            String::from("bearer abcdef0123456789abcdef: no"),
            "bearer [redacted]: no",
        ),
        (format!("?token={jwt}&x=1"), "?[redacted]&x=1"),
        (format!("GET /api/{jwt}"), "GET [redacted]"),
        (
            String::from("Authorization: Basic dXNlcjpwYXNzd29yZA=="),
            "Authorization: Basic [redacted]",
        ),
        (
            String::from("client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURQ=="),
            "client-key-data: [redacted]",
        ),
        (
            String::from("https://admin:hunter2@10.0.0.1:6443/api"),
            "https://[redacted]@10.0.0.1:6443/api",
        ),
        (
            String::from("password=hunter2, retry"),
            "password=[redacted], retry",
        ),
        (String::from("token: abc"), "token: [redacted]"),
        (
            String::from(r#"{"token":"abc","n":1}"#),
            r#"{"token":"[redacted]","n":1}"#,
        ),
        (String::from("Password = abc d"), "Password = [redacted] d"),
        (String::from(r#""secret":123"#), r#""secret"[redacted]"#),
        // The first that looks like one need not be it.
        (format!("/a5eyJ/{jwt}"), "[redacted]"),
        (String::from("k8s-aws-v1.aHR0cHM6Ly9zdHM"), "[redacted]"),
        (format!("\"{jwt}\""), "\"[redacted]\""),
        (
            String::from(
                "bad -----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY----- key",
            ),
            "bad [redacted] key",
        ),
        (
            String::from(
                "-----BEGIN X-----\nMIIEow\n-----END \n-----BEGIN Y-----\nMIIEow\n-----END Y-----",
            ),
            "[redacted]\n[redacted]",
        ),
        (
            format!("-----BEGIN X-----\n-----END a {jwt}"),
            "[redacted]a [redacted]",
        ),
        (
            String::from("-----BEGIN X-----\n-----END -----BEGIN Y-----\nMIIEow"),
            "[redacted][redacted]",
        ),
        (
            String::from("cut -----BEGIN CERTIFICATE-----\nMIIEow"),
            "cut [redacted]",
        ),
    ] {
        assert_eq!(redact(&text), expected);
    }
}

#[test]
fn what_is_no_secret_stays_as_it_is() {
    for text in [
        "",
        "no IP addresses available in range set: 10.0.0.1-10.0.0.6",
        "failed to find plugin \"bridge\" in path [/opt/cni/bin]",
        "standard bearer of tokens; eyJ",
        "-----END of story",
        "veth a5f3e8eyJ already exists \u{1f600} \u{e9}",
        "Get \"https://10.0.0.1:443/api/v1/pods?limit=5\": dial tcp 10.0.0.1:443: refused",
        "basic auth is off: token",
        "secret \"db-password\" not found",
        "open /var/run/secrets/token: no such file",
        "container 5f3eyJ0a1b2c3d4e5f6a7b8c9d0e1f2",
    ] {
        assert_eq!(redact(text), text);
    }
}

/// `SECRET` is in each, and in none of what comes out.
#[test]
fn a_secret_is_known_by_its_name_however_that_is_written() {
    for (text, expected) in [
        ("config:password=SECRET", "config:password=[redacted]"),
        ("--set=token=SECRET", "--set=token=[redacted]"),
        ("a=b:c=token:SECRET=x:y", "a=b:c=token:[redacted]"),
        ("token==SECRET", "token=[redacted]"),
        ("token == SECRET", "token == [redacted]"),
        ("x:token: SECRET", "x:token: [redacted]"),
        ("x=token : SECRET", "x=token : [redacted]"),
        ("apikey=SECRET", "apikey=[redacted]"),
        ("X-API-Key: SECRET", "X-API-Key: [redacted]"),
        ("api_key=SECRET", "api_key=[redacted]"),
        ("apiKey:SECRET", "apiKey:[redacted]"),
        (
            "{\"secretAccessKey\":\"SECRET\"}",
            "{\"secretAccessKey\":\"[redacted]\"}",
        ),
        (
            "AWS_SECRET_ACCESS_KEY=SECRET",
            "AWS_SECRET_ACCESS_KEY=[redacted]",
        ),
        ("access-key: SECRET", "access-key: [redacted]"),
        ("private_key=SECRET", "private_key=[redacted]"),
        ("privateKey: SECRET", "privateKey: [redacted]"),
        ("client_secret=SECRET&x=1", "client_secret=[redacted]&x=1"),
        ("clientSecret: \"SECRET\"", "clientSecret: \"[redacted]\""),
        ("keyData: SECRET", "keyData: [redacted]"),
        ("PASSPHRASE=SECRET", "PASSPHRASE=[redacted]"),
    ] {
        assert_eq!(redact(text), expected);
    }
}

#[test]
fn a_password_may_hold_signs_and_in_quotes_anything() {
    for (text, expected) in [
        ("password=a!SECRET#1, x", "password=[redacted], x"),
        ("password: a?SECRET] x", "password: [redacted]] x"),
        ("password :a$SECRET x", "password [redacted] x"),
        (
            r#"{"password":"a phrase, SECRET; x","n":1}"#,
            r#"{"password":"[redacted]","n":1}"#,
        ),
        (
            r#"{"password":"a \"quoted\" SECRET","n":1}"#,
            r#"{"password":"[redacted]","n":1}"#,
        ),
        (
            r#"err="bad \"password\": \"a SECRET\", x" y"#,
            r#"err="bad \"password\": \"[redacted]\", x" y"#,
        ),
        ("password='a SECRET' x", "password='[redacted]' x"),
        // An empty one is none, and what stands in two of them is one.
        (
            r#"{"token": "", "n": "x", "secret": "SECRET"}"#,
            r#"{"token": "", "n": "x", "secret": "[redacted]"}"#,
        ),
        ("token: \"\"SECRET\"\"", "token: \"\"[redacted]\"\""),
        // One that does not end is a word.
        ("password='SECRET, x", "password='[redacted], x"),
    ] {
        assert_eq!(redact(text), expected);
    }
}

#[test]
fn a_scheme_is_known_behind_a_name() {
    let secret = "abcdef0123456789";
    for before in [
        "Authorization:Bearer ",
        "Authorization=basic ",
        "x:BEARER ",
        "Bearer: ",
        "bearer:",
        "Authorization:Bearer=",
    ] {
        let text = format!("{before}{secret} x");
        assert_eq!(redact(&text), format!("{before}[redacted] x"));
    }
}

#[test]
fn each_url_loses_who_asks() {
    for (text, expected) in [
        ("x=https://a:SECRET@h/x", "x=https://[redacted]@h/x"),
        ("https://a:b@SECRET@h/x", "https://[redacted]@h/x"),
        (
            "https://h/https://a:SECRET@h",
            "https://h/https://[redacted]@h",
        ),
        (
            "https://a:b@h:443/token=SECRET",
            "https://[redacted]@h:443/token=[redacted]",
        ),
        ("https://token:SECRET@h/x", "https://[redacted]@h/x"),
        ("password=SECRET://a@b", "password=[redacted]"),
    ] {
        assert_eq!(redact(text), expected);
    }
}

#[test]
fn a_token_does_not_come_out_whatever_stands_around_it() {
    let jwt = "eyJhbGciOiJub25lIn0.eyJzZWNyZXQiOiJ0cnVlIn0.";
    for (before, behind) in [
        ("TOKEN=", "]"),
        ("[a K8S_API_TOKEN=", "]"),
        ("x:", ""),
        ("\\n", "\\n"),
        ("%22", "%22"),
        ("{\"x\":\"", "\"}"),
        ("/a/", "/b"),
    ] {
        let out = redact(&format!("{before}{jwt}{behind}"));
        assert!(out.contains("[redacted]") && !out.contains("eyJ"), "{out}");
    }
    let pem = redact("x\\nLS0tLS1CRUdJTiBSU0EgUFJJVkFURQ==");
    assert_eq!(pem, "x\\[redacted]");
}

#[test]
fn names_of_objects_and_of_what_is_about_secrets_stay() {
    for text in [
        "secret \"kube-system/my-token\": not found",
        "secret \"my-token\": not found",
        "secrets \"db-password\" is forbidden: User \"system:serviceaccount:a:b\" cannot get",
        "MountVolume.SetUp failed for volume \"api-token\" : secret \"api-token\" not found",
        "err=\"for volume \\\"api-token\\\" : secret \\\"api-token\\\" not found\"",
        "couldn't find key a in Secret kube-system/api-token: no",
        "token_bucket=7 tokens: 5 max_tokens=3 secretName: a secretName=b",
        "imagePullSecrets: regcred; Unable to retrieve some image pull secrets (a); x",
        "accessKeyId=AKIA key=1 keys: 2 monkey=3 pod:a/b",
        "kubernetes.io/service-account-token: no such type",
        "object \"kube-system\"/\"my-secret\" not registered",
        "cri-containerd:5a0f3c2e9b71d486 0000:00:1f.2 fd00::7 a=b:c=d",
    ] {
        assert_eq!(redact(text), text);
    }
}

#[test]
fn tokens_of_clouds_and_what_signs_a_url_are_known() {
    for (text, expected) in [
        (
            "?X-Amz-Security-Token=SECRET&X-Amz-Signature=SECRET&x=1",
            "?X-Amz-Security-Token=[redacted]&X-Amz-Signature=[redacted]&x=1",
        ),
        (
            "https://a.blob.core.windows.net/c?sv=2020&sig=SECRET%3D: 403",
            "https://a.blob.core.windows.net/c?sv=2020&sig=[redacted]: 403",
        ),
        ("signature=\"SECRET\"", "signature=\"[redacted]\""),
        ("AKIAIOSFODNN7EXAMPLE: no", "[redacted]: no"),
        (
            "key ASIAIOSFODNN7EXAMPLE SECRETwJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPL x",
            "key [redacted] [redacted] x",
        ),
        (
            "?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE/2026/s3",
            "?[redacted]",
        ),
        ("ghp_SECRETaaaaaaaaaaaa x", "[redacted] x"),
        ("x=github_pat_SECRETaaaaaa", "[redacted]"),
        ("glpat-SECRETaaaaaaaaaaaa", "[redacted]"),
        ("oc login sha256~SECRETaaaaaaaaa", "oc login [redacted]"),
        ("join abcdef.0123456789abcdef x", "join [redacted] x"),
    ] {
        assert_eq!(redact(text), expected);
    }
}

#[test]
fn what_follows_an_option_or_a_header_is_known() {
    for (text, expected) in [
        ("bearerToken SECRETabcdef0123 y", "bearerToken [redacted] y"),
        ("x --password SECRET y", "x --password [redacted] y"),
        ("--token  SECRET", "--token  [redacted]"),
        ("[\"--token\", \"SECRET\"]", "[\"--token\", \"[redacted]\"]"),
        (
            "--db-password \"a SECRET\" x",
            "--db-password \"[redacted]\" x",
        ),
        ("Token{Value:SECRET}", "Token{Value:[redacted]}"),
        (
            "&Token{Value: \"SECRET\", N:1}",
            "&Token{Value: \"[redacted]\", N:1}",
        ),
        (
            "\"token\" : { \"value\" : \"SECRET\" }",
            "\"token\" : { \"value\" : \"[redacted]\" }",
        ),
        (
            "Cookie: session=SECRET; b=SECRET, x",
            "Cookie: [redacted], x",
        ),
        (
            "map[Cookie:[session=SECRET] Set-Cookie:[a=SECRET; Path=/]]",
            "map[Cookie:[[redacted]] Set-Cookie:[[redacted]]]",
        ),
        ("Set-Cookie:a=SECRET; Path=/", "Set-Cookie:[redacted]"),
    ] {
        assert_eq!(redact(text), expected);
    }
}

#[test]
fn words_that_are_like_those_of_secrets_stay() {
    for text in [
        "cannot verify signature: bad digest",
        "x509: signature algorithm = SHA1 signature",
        "the signature of sig is missing; sig: none",
        "flag --token is not known; --token and --password must not be given",
        "use --token or --token-file /etc/x; --password, --token",
        "unknown flag: --token\nnext line",
        "cookie=0x0, duration=4s; netns cookie: 4711",
        "Token{Name:a} config{Value:b} value: c",
        "token MinimumTokenLength token abcdefghijklmnop0 secret MyApp/Secret0123456",
        "AKIA ASIA AKIAx5 MALAYSIAIOSFODNN7EXAMPLEX",
        "sha256:5f3c9a1be07d4c2288aa01f6b3d9e4470c1a2b3c4d5e6f708192a3b4c5d6e7f8",
        "worker.example-internal docker.0123456789abcdefg 1.2.3.4 kubelet.service",
    ] {
        assert_eq!(redact(text), text);
    }
}
