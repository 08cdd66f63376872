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
        (format!("?token={jwt}&x=1"), "?token=[redacted]&x=1"),
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
        (String::from(r#""secret":123"#), r#""secret":[redacted]"#),
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
        ("token==SECRET", "token==[redacted]"),
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
        ("password :a$SECRET x", "password :[redacted] x"),
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
        // One that does not end is the line's.
        ("password='a SECRET, x\ny", "password='[redacted]\ny"),
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
        let text = format!("{before}{secret}\nx");
        assert_eq!(redact(&text), format!("{before}[redacted]\nx"));
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
    assert_eq!(pem, "x\\n[redacted]");
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
            "?X-Amz-Credential=[redacted]",
        ),
        ("ghp_SECRETaaaaaaaaaaaa x", "[redacted] x"),
        ("x=github_pat_SECRETaaaaaa", "x=[redacted]"),
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
            "\"token\" : [redacted]",
        ),
        (
            "Cookie: session=SECRET; b=SECRET, x",
            "Cookie: [redacted], x",
        ),
        (
            "map[Cookie:[session=SECRET] Set-Cookie:[a=SECRET; Path=/]]",
            "map[Cookie:[redacted] Set-Cookie:[redacted]]",
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

/// Each form with a word of chance in `SECRET`'s place, as a line of a log and
/// as one that quotes it.
#[test]
fn no_form_of_a_secret_lets_it_out() {
    const CHANCE: &str = "q7Lm0Zp4Rt8YwKx2VbN5sDc1";
    let forms = [
        "Authorization: Negotiate SECRET",
        r#"Authorization: Digest username="u", response="SECRET""#,
        "X-Auth-Token: SECRET",
        "X-Vault-Token SECRET",
        "api key SECRET",
        r#"{"auths":{"r.io":{"auth":"SECRET"}}}"#,
        r#".dockerconfigjson: {"auths":{"r":{"auth":"SECRET"}}}"#,
        "password is SECRET",
        "passwd SECRET",
        "--pass SECRET",
        "pwd=SECRET",
        "-p SECRET",
        "user:SECRET@10.0.0.1",
        "mysql://root:SECRET@db/x",
        "redis://:SECRET@h",
        "amqp://u:p%40SECRET@h",
        "AccountKey=SECRET==;EndpointSuffix=core",
        "SharedAccessSignature sv=1&sig=SECRET",
        "xoxb-123456789012-SECRET",
        "sk_live_SECRET",
        "AIzaSECRETabcdefghijk",
        "hvs.SECRET",
        "npm_SECRET",
        "ya29.SECRET",
        "dckr_pat_SECRET",
        "SG.SECRET.abc",
        r#"-----BEGIN RSA PRIVATE KEY-----\\nSECRET\\n-----END RSA PRIVATE KEY-----"#,
        "token ''SECRET''",
        "token=`SECRET`",
        "token => SECRET",
        r#""token":["SECRET"]"#,
        r#"token:\\n  SECRET"#,
        "client_assertion=SECRET",
        "code=SECRET&state=x",
        "id_token=SECRET",
        "refresh_token=SECRET",
        "access_token=SECRET",
        "X-Goog-Signature=SECRET",
        r#""password":{"S":"SECRET"}"#,
        "PGPASSWORD=SECRET psql",
        "token%3DSECRET",
        "token%22%3A%22SECRET",
        "Authorization: token SECRET",
        "Authorization: AWS4-HMAC-SHA256 Credential=x, Signature=SECRET",
        "ApiKey SECRET",
        "Authorization: SECRET",
        r#"secret="a b SECRET"#,
        "token\tSECRET",
        "pass phrase: SECRET",
        "credential: SECRET",
        "credentials=SECRET",
        "auth=SECRET",
        r#""auth": "SECRET""#,
        "session_key=SECRET",
        r#"privateKey\\":\\"SECRET"#,
        "tokens: [a, SECRET]",
        "bearer_token_file_contents(SECRET)",
        r#"Bearer\\u0020SECRET"#,
        "Bearer  SECRET",
        "Bearer\tSECRET",
        "BEARER_SECRET",
        "bearer=SECRET",
        "token(SECRET)",
        "token<SECRET>",
        "token[SECRET]",
        "token;SECRET",
        "token,SECRET",
        r#"token "SECRET""#,
        "TOKEN|SECRET",
        "identity-token/SECRET",
        "clientSecret SECRET",
        "storageAccountKey: SECRET",
        "azure-storage-key=SECRET",
        "account_key: SECRET",
        "connectionString=SECRET",
        "sas=?sv=x&se=y&sig=SECRET",
        "x-ms-copy-source-authorization: Bearer SECRET",
        "jwt=SECRET",
        "assertion=SECRET",
        "pin: SECRET",
        "hmac=SECRET",
        "community=SECRET",
        "psk=SECRET",
        "wpa-psk SECRET",
        "ipsec-key=SECRET",
        "secretboxKey: SECRET",
        r#"CILIUM_IPSEC_KEYS="3 rfc4106(gcm(aes)) SECRET 128""#,
        "etcd --user root:SECRET",
        "curl -u admin:SECRET https://h",
        r#"curl -H "Authorization: Basic SECRET" x"#,
        r#"kubeconfig token: |\\n SECRET"#,
        "Proxy-Authorization: Basic SECRET",
        "HTTP_PROXY=http://u:SECRET@proxy:3128",
        "//u:SECRET@h/share cifs",
        "mount -o username=u,password=SECRET,vers=3",
        "mount -o user=u,pass=SECRET",
        "secret=$SECRET",
        "rbd key=SECRET",
        "ceph secret=SECRET==",
        r#"[client.admin]\\n key = SECRET=="#,
    ];
    for form in forms {
        let form = form.replace("SECRET", CHANCE);
        let quoted = form.replace('\\', "\\\\").replace('"', "\\\"");
        for text in [
            format!("bad {form} end"),
            format!("err=\"bad {quoted} end\" n=1"),
        ] {
            let out = redact(&text);
            assert!(!out.contains(CHANCE), "{text:?} is {out:?}");
            assert_eq!(redact(&out), out, "it is not taken out at once");
        }
    }
}

/// Whatever it looks like: its name is enough.
#[test]
fn the_name_of_a_secret_covers_its_whole_value() {
    for (text, expected) in [
        ("tokens: [a, hunter2] x", "tokens: [redacted] x"),
        (
            r#""token":["hunter2"],"n":1"#,
            r#""token":[redacted],"n":1"#,
        ),
        (
            r#"{"password":{"S":"a b"},"n":1}"#,
            r#"{"password":[redacted],"n":1}"#,
        ),
        (
            r#"{\"auths\":{\"r\":{\"auth\":\"dTpw\"}}} x"#,
            r#"{\"auths\":[redacted]} x"#,
        ),
        (
            "password: |\n  a\n  hunter2\nuser: b",
            "password: |\n  [redacted]\nuser: b",
        ),
        (
            "password:\\n  hunter2\\nuser: b",
            "password:\\n  [redacted]\\nuser: b",
        ),
        ("secret=\"a b hunter2\nnext", "secret=\"[redacted]\nnext"),
        (
            "password%3Dhunter2%26n%3D1",
            "password%3D[redacted]%26n%3D1",
        ),
        (
            "token%22%3A%22hunter2%22%2C1",
            "token%22%3A%22[redacted]%22%2C1",
        ),
        ("x?token=a%20hunter2&n=1", "x?token=[redacted]&n=1"),
        ("token%253Dhunter2", "token%253D[redacted]"),
        ("password => hunter2;", "password => [redacted];"),
        ("PGPASSWORD=hunter2 psql", "PGPASSWORD=[redacted] psql"),
        ("DB_PASSWORD_2=hunter2", "DB_PASSWORD_2=[redacted]"),
        ("apiKeyValue=hunter2", "apiKeyValue=[redacted]"),
        ("account key = hunter2", "account key = [redacted]"),
        ("pass phrase: hunter2", "pass phrase: [redacted]"),
        ("connectionString=hunter2", "connectionString=[redacted]"),
        (
            "IPSEC_KEYS=\"3 rfc4106(gcm(aes)) hunter2 128\" x",
            "IPSEC_KEYS=\"[redacted]\" x",
        ),
        (
            "mount -o user=u,password=hunter2,vers=3",
            "mount -o user=u,password=[redacted],vers=3",
        ),
        ("password=a[b]hunter2 x", "password=[redacted] x"),
        ("password=a\"hunter2 x", "password=[redacted] x"),
        ("password=\u{e9}hunter2 x", "password=[redacted] x"),
    ] {
        assert_eq!(redact(text), expected);
    }
}

#[test]
fn a_header_is_a_secret_to_the_end_of_its_line_or_quotes() {
    for (text, expected) in [
        (
            "Authorization: hunter2 a, b\nx",
            "Authorization: [redacted]\nx",
        ),
        (
            "proxy-authorization=Digest username=\"u\", response=\"hunter2\" x",
            "proxy-authorization=Digest [redacted]",
        ),
        (
            "curl -H \"Authorization: Basic hunter2\" x",
            "curl -H \"Authorization: Basic [redacted]\" x",
        ),
        (
            r#"err="-H \"AUTHORIZATION: NTLM hunter2\" x" n=1"#,
            r#"err="-H \"AUTHORIZATION: NTLM [redacted]\" x" n=1"#,
        ),
        (
            r#"{"Authorization":["Negotiate hunter2"],"n":1}"#,
            r#"{"Authorization":[redacted],"n":1}"#,
        ),
        (
            "map[Authorization:hunter2] x",
            "map[Authorization:[redacted]] x",
        ),
        (
            "authorization: required; mode=RBAC",
            "authorization: required; mode=RBAC",
        ),
    ] {
        assert_eq!(redact(text), expected);
    }
}

#[test]
fn a_user_s_password_is_known_without_a_url() {
    for (text, expected) in [
        ("curl -u admin:hunter2 x", "curl -u admin:[redacted] x"),
        ("etcd --user root:hunter2", "etcd --user root:[redacted]"),
        ("etcd --user=root:hunter2", "etcd --user=root:[redacted]"),
        (
            "scp user:hunter2@10.0.0.1:/x",
            "scp user:[redacted]@10.0.0.1:/x",
        ),
        ("//u:hunter2@h/share cifs", "//[redacted]@h/share cifs"),
        (
            "https%3A%2F%2Fu%3Ahunter2%40h%2Fx",
            "https%3A%2F%2F[redacted]%40h%2Fx",
        ),
        ("https://u:a!$hunter2@h/x", "https://[redacted]@h/x"),
    ] {
        assert_eq!(redact(text), expected);
    }
}

/// What a verdict or a reader needs.
#[test]
fn what_names_a_thing_on_a_node_stays() {
    for text in [
        "failed to setup network for sandbox \"5f3c9a1be07d4c2288aa01f6b3d9e4470c1a2b3c4d5e6f708192a3b4c5d6e7f8\"",
        "containerID=5f3c9a1be07d4 sandbox: 5f3c9a1be07d key=5f3c9a1be07d4c2288aa01f6b3d9e447",
        "pod uid: 1b9f2a44-0c3e-4d1a-8a77-2f6d5e4c3b2a UID=1B9F2A44-0C3E-4D1A-8A77-2F6D5E4C3B2A",
        "netns=/var/run/netns/cni-1b9f2a44-0c3e-4d1a-8a77-2f6d5e4c3b2a",
        "registry.k8s.io/pause:3.9@sha256:7031c1b283388d2c2e09b57badb803c05ebed362dc88d84b480cc47f72a21097",
        "eni=eni-0a1b2c3d4e5f60718 instance: i-0a1b2c3d4e5f60718 subnet-0a1b2c3d4e5f60718",
        "pod=shop/web-7d4b9c6f5d-x2x7z node=ip-10-0-0-1.eu-west-1.compute.internal",
        "node: gke-prod-default-pool-1a2b3c4d-abcd aks-nodepool1-12345678-vmss00000a",
        "open /var/lib/kubelet/pods/1b9f2a44-0c3e-4d1a-8a77-2f6d5e4c3b2a/volumes/kubernetes.io~projected/kube-api-access-x2x7z/token: no such file",
        "private key: /etc/kubernetes/pki/apiserver.key: permission denied",
        "--client-key=/etc/kubernetes/pki/a.key --kubeconfig=/etc/a.conf",
        "key=/registry/pods/a storage key: /registry/pods/shop/web-0 auth: required pass=3",
        "keys: 2 monkey=3 turkey: x; key \"a\" not found; secretName=web-tls tokenCount: 7",
        "imagePullSecrets: regcred; csi-secrets-store: failed; token-server-7d4b: refused",
        "token.go:45] x; token.service: Failed; secret.example.com:443: refused",
        "failed to request token: Post \"https://10.0.0.1/x\": dial tcp 10.0.0.1:443: timeout",
        "getting credentials: exec: executable aws failed with exit code 1",
        "2: eth0@if5: x veth:eth0@if12 fd00::1:2 02:42:ac:11:00:02 10.0.0.1:443",
        "k8s-pod-network.5f3c9a1be07d4c2288aa01f6b3d9e4470c1a2b3c4d5e6f708192a3b4c5d6e7f8",
        "chain CNI-5f3c9a1be07d4c2288aa01f6 KUBE-SVC-TCOU7JCQXEZGVUNU IPv4AddressAllocationFailed",
        "_RNvXs3_NtNtCsgF5vJkX5jSdQ2wE4rT6_6kernel v1.28.3-gke.1203001 5.15.0-1051-azure",
        "MountVolume.SetUp failed: rpc error: code = Unknown desc = 2026-11-23T10:00:00.345678Z",
        "https://0A1B2C3D4E5F60718293A4B5C6D7E8F9.gr7.eu-west-1.eks.amazonaws.com/api",
        "arn:aws:sts::123456789012:assumed-role/EksNodeRole-1A2B3C4D5E6F7/i-0a1b2c3d4e5f60718",
        "docker run -u 1000:1000 --user=0:0 x",
        "could not create session key: disk quota exceeded; non-existent secret key: initconfig",
        "AssignPodIPv4Address, skip ENI; host iZbp1d4xlr6lnhacrauvoyZ containerd[912]",
        "may require authorization: authorization failed: no basic auth credentials",
    ] {
        assert_eq!(redact(text), text);
    }
}

/// Twice the text may take twice the time, and not four times: much less than a
/// square's time is the bound.
#[test]
fn text_that_is_made_to_take_long_does_not() {
    const LONG: usize = 64 << 10;
    let units = [
        "token=",
        "token=\"",
        "token={",
        "token:[",
        "token:\n ",
        "token:\n\n",
        "token={\n",
        "token/",
        "token ",
        "token is ",
        "--token ",
        "-u ",
        "-u=",
        "a:b@",
        "//@",
        "@",
        "\\",
        "\\\"",
        "%25",
        "%",
        "eyJ",
        "eyJ.",
        "Authorization: ",
        "Authorization: \"",
        "Authorization: x=\"",
        "Cookie: a=b; ",
        "bearer=",
        "Bearer ",
        "key=",
        "key={",
        "key={\"",
        "a",
        "-",
        "aA0",
        "secret'",
        "token=''",
        "-----BEGIN ",
        "-----BEGIN x-----END ",
        "Token{Value:",
        "token='\\\"",
        "(",
        "token=[\"",
    ];
    for unit in units {
        let text = unit.repeat(LONG / unit.len());
        let begin = std::time::Instant::now();
        redact(&text);
        let took = begin.elapsed();
        assert!(took.as_secs() < 2, "{unit:?} takes {took:?}");
    }
}

#[test]
fn a_value_beside_a_secrets_name_is_one() {
    for (text, expected) in [
        (
            "EnvVar{Name:DB_PASSWORD,Value:SECRET,ValueFrom:nil,}",
            "EnvVar{Name:DB_PASSWORD,Value:[redacted],ValueFrom:nil,}",
        ),
        (
            r#"{"name":"DB_PASSWORD","value":"SECRET"}"#,
            r#"{"name":"DB_PASSWORD","value":"[redacted]"}"#,
        ),
        (
            r#"key: "password" value: "SECRET""#,
            r#"key: "password" value: "[redacted]""#,
        ),
        (
            "EnvVar{Name:A_TOKEN,Value:SECRET,},EnvVar{Name:B,Value:b,}",
            "EnvVar{Name:A_TOKEN,Value:[redacted],},EnvVar{Name:B,Value:b,}",
        ),
    ] {
        assert_eq!(redact(text), expected);
    }
}

#[test]
fn the_data_of_a_secret_is_one_wherever_its_kind_stands() {
    for text in [
        r#"{"kind":"Secret","data":{"db":"SECRET"}}"#,
        r#"{"apiVersion":"v1","data":{"db":"SECRET"},"kind":"Secret"}"#,
        r#"{"stringData":{"db":"SECRET"}}"#,
    ] {
        let out = redact(text);
        assert!(
            !out.contains("SECRET") && out.contains("[redacted]"),
            "{out}"
        );
    }
    let text = r#"{"kind":"ConfigMap","data":{"db":"plain"}}"#;
    assert_eq!(redact(text), text);
}

#[test]
fn what_is_no_port_is_a_password() {
    for (text, expected) in [
        (
            "parse \"redis://:SEC/RET@h:6379\": invalid port \":SEC\" after host",
            "parse \"redis://[redacted]@h:6379\": invalid port \":[redacted]\" after host",
        ),
        ("pg://u:SEC?RET@h/x y@z", "pg://[redacted]@h/x y@z"),
    ] {
        assert_eq!(redact(text), expected);
    }
    for text in ["http://h:80/a@b", "http://[fd00::1]/a@b", "http://h/a@b:c"] {
        assert_eq!(redact(text), text);
    }
}

#[test]
fn a_pass_of_something_is_a_password_and_a_count_is_none() {
    assert_eq!(
        redact("DB_PASS=a ssh_pass: b"),
        "DB_PASS=[redacted] ssh_pass: [redacted]"
    );
    assert_eq!(redact("pass: 5, fail: 3"), "pass: 5, fail: 3");
}

#[test]
fn a_token_of_k3s_goes_with_its_password() {
    let hash = "0123456789abcdef".repeat(4);
    assert_eq!(
        redact(&format!("join K10{hash}::server:SECRET now")),
        "join [redacted] now"
    );
    let image = format!("K10{hash}");
    assert_eq!(redact(&image), image);
}
