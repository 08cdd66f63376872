//! A signature beside `SHA256SUMS`, as minisign makes it: with the sums it
//! covers all files. Whoever verifies needs the public key from elsewhere than
//! the files.
//!
//! ```text
//! minisign -G -p node-tracer.pub -s node-tracer.key        # once
//! NODE_TRACER_SIGNING_PASSWORD=... cargo xtask dist --sign node-tracer.key
//! minisign -V -p node-tracer.pub -m SHA256SUMS && sha256sum -c SHA256SUMS
//! ```
//!
//! The signature is another one each time, unlike all else that is released:
//! chance has a part in it, which protects the key.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use anyhow::Context as _;
use minisign::{PublicKey, SecretKey, SecretKeyBox};

use super::Release;

/// Has the password of the secret key, if it has one.
const PASSWORD: &str = "NODE_TRACER_SIGNING_PASSWORD";

pub(super) struct Signer {
    secret: SecretKey,
    public: PublicKey,
}

impl Signer {
    /// The key of a file, as `minisign -G` writes it.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path);
        let text = text.with_context(|| format!("--sign {}", path.display()))?;
        let password = std::env::var(PASSWORD).ok();
        Self::of(&text, password).with_context(|| {
            format!(
                "--sign {}: not a secret key of minisign, or {PASSWORD} is not its password",
                path.display()
            )
        })
    }

    fn of(text: &str, password: Option<String>) -> anyhow::Result<Self> {
        let boxed = SecretKeyBox::from_string(text)?;
        let secret = match password {
            Some(password) => boxed.into_secret_key(Some(password))?,
            // It would ask on the terminal else.
            None => boxed.into_unencrypted_secret_key()?,
        };
        let public = PublicKey::from_secret_key(&secret)?;
        Ok(Self { secret, public })
    }

    /// The public key, as `minisign -P` takes it.
    pub(super) fn public(&self) -> String {
        self.public.to_base64()
    }

    /// The signature of the sums of a release.
    pub(super) fn sign(&self, sums: &[u8], release: &Release) -> anyhow::Result<Vec<u8>> {
        // What is trusted says which release it is: the sums of an older one,
        // passed off as these, would show.
        let trusted = format!("node-tracer {} of {}", release.version, release.second()?);
        let made = minisign::sign(
            Some(&self.public),
            &self.secret,
            Cursor::new(sums),
            Some(&trusted),
            Some("SHA256SUMS of node-tracer, signed by minisign"),
        );
        Ok(made?.into_string().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use minisign::{KeyPair, SignatureBox};

    use super::*;

    fn release() -> Release {
        Release {
            version: String::from("1.2.3"),
            time: 1_700_000_000,
        }
    }

    fn is_good(signature: &[u8], sums: &[u8], public: &str) -> bool {
        let signature = String::from_utf8(signature.to_vec()).unwrap();
        let signature = SignatureBox::from_string(&signature).unwrap();
        let comment = signature.trusted_comment().unwrap();
        assert_eq!(comment, "node-tracer 1.2.3 of 2023-11-14T22:13:20Z");
        let public = PublicKey::from_base64(public).unwrap();
        minisign::verify(&public, &signature, Cursor::new(sums), true, false, false).is_ok()
    }

    #[test]
    fn the_sums_are_signed_for_who_has_the_public_key_and_no_other_sums_are() {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let text = pair.sk.to_box(None).unwrap().into_string();
        let signer = Signer::of(&text, None).unwrap();
        let made = signer.sign(b"sums", &release()).unwrap();
        assert!(is_good(&made, b"sums", &signer.public()));
        assert!(!is_good(&made, b"other", &signer.public()));
        let other_key = KeyPair::generate_unencrypted_keypair().unwrap();
        assert!(!is_good(&made, b"sums", &other_key.pk.to_base64()));
    }

    #[test]
    fn what_is_no_key_is_refused_without_asking_anybody() {
        assert!(Signer::of("no key", None).is_err());
        assert!(Signer::of("no key", Some(String::from("secret"))).is_err());
    }
}
