//! The token: whoever has it may do everything. A second one, where there is one, lets look.

use anyhow::{Context, Result, anyhow, bail};
use ring::hmac::{self, HMAC_SHA256, Key};
use ring::rand::{SecureRandom, SystemRandom};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file in the state directory.
const FILE_NAME: &str = "http-token";
/// Bytes of one that is drawn.
const DRAWN: usize = 32;
/// Characters of one that somebody has written, at least: fewer can be guessed.
const CHARACTERS_MIN: usize = 20;
/// And at most.
const CHARACTERS_MAX: u64 = 1024;

/// See the module's documentation.
pub struct Token {
    /// A key of this process, so that nothing of what is compared can be told from outside.
    key: Key,
    tag: hmac::Tag,
    file: PathBuf,
}

impl Token {
    /// The one of the state directory `folder`, which is drawn where there is none.
    ///
    /// # Errors
    /// A file that cannot be read or written, or whose token is none.
    pub fn kept(folder: &Path) -> Result<Token> {
        Token::drawn(&folder.join(FILE_NAME))
    }

    /// A second token, in `file`, which is drawn where there is none; nobody is to take it for `first`.
    ///
    /// # Errors
    /// As [`Token::kept`], or it is the first one.
    pub fn second(file: &Path, first: &Token) -> Result<Token> {
        let token = Token::drawn(file)?;
        let text = fs::read_to_string(file);
        let text =
            text.with_context(|| format!("reading the token to look from {}", file.display()))?;
        if first.is(text.trim()) {
            bail!(
                "{} and {} hold the same token, so whoever may look could do everything: remove the file of --http-look-token \
                 to have another drawn",
                file.display(),
                first.file.display()
            );
        }
        Ok(token)
    }

    /// The one in the file `path`, which is drawn where there is none.
    fn drawn(path: &Path) -> Result<Token> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let doing = || format!("writing a token for --http to {}", path.display());
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(doing)?;
        let options = OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
        match options.open(path) {
            Ok(mut file) => {
                let mut bytes = [0; DRAWN];
                SystemRandom::new()
                    .fill(&mut bytes)
                    .map_err(|_| anyhow!("the system gives no random bytes"))
                    .with_context(doing)?;
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let written = file.write_all(format!("{hex}\n").as_bytes());
                if let Err(error) = written.and_then(|()| file.sync_all()) {
                    // Half a token would stay for ever.
                    let _ = fs::remove_file(path);
                    return Err(error).with_context(doing);
                }
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(doing),
        }
        Token::read(path)
    }

    /// The one in `file`.
    ///
    /// # Errors
    /// A file that cannot be read, that others may read, or whose token is none.
    pub fn read(file: &Path) -> Result<Token> {
        let shown = file.display();
        let doing = || format!("reading the token of --http from {shown}");
        let opened = File::open(file).with_context(doing)?;
        let mode = opened.metadata().with_context(doing)?.mode();
        if mode & 0o077 != 0 {
            bail!("{}: others may read it; chmod 600 {shown}", doing());
        }
        let mut text = String::new();
        opened.take(CHARACTERS_MAX + 1).read_to_string(&mut text).with_context(doing)?;
        let token = text.trim();
        if token.len() < CHARACTERS_MIN || text.len() as u64 > CHARACTERS_MAX {
            bail!(
                "{}: a token has from {CHARACTERS_MIN} to {CHARACTERS_MAX} characters; remove the file to have one drawn",
                doing()
            );
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("{}: a token is letters, digits and signs, without blanks", doing());
        }
        let key = Key::generate(HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| anyhow!("the system gives no random bytes"))
            .with_context(doing)?;
        let tag = hmac::sign(&key, token.as_bytes());
        Ok(Token { key, tag, file: file.to_owned() })
    }

    /// Compares in a time that tells nothing of the token.
    pub fn is(&self, given: &str) -> bool {
        hmac::verify(&self.key, given.as_bytes(), self.tag.as_ref()).is_ok()
    }

    /// Where it is.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_drawn_once_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        Token::kept(&state).unwrap();
        let path = state.join(FILE_NAME);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let again = Token::kept(&state).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let token = text.trim();
        assert_eq!(token.len(), 2 * DRAWN);
        assert!(again.is(token));
        for other in
            ["", &token[1..], &token.to_uppercase().replace('0', "1"), &format!("{token}0")]
        {
            assert!(!again.is(other), "{other:?}");
        }
        let other = tempfile::tempdir().unwrap();
        assert!(!Token::kept(other.path()).unwrap().is(token));
    }

    #[test]
    fn a_second_token_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let first = Token::kept(folder.path()).unwrap();
        let path = folder.path().join("look");
        let second = Token::second(&path, &first).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(second.is(text.trim()) && !first.is(text.trim()));
        fs::copy(folder.path().join(FILE_NAME), &path).unwrap();
        let error = Token::second(&path, &first).err().unwrap().to_string();
        assert!(error.contains("the same token"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_secret_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        for (text, mode, says) in [
            ("short", 0o600, "from 20 to"),
            ("with blanks in it, and long enough", 0o600, "without blanks"),
            ("0123456789012345678901234567890", 0o640, "chmod 600"),
        ] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Token::read(&path).err().unwrap();
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
    }
}
