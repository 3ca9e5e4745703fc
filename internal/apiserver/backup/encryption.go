package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"golang.org/x/crypto/ssh"
)

const (
	// MaxRecipients is how many recipients a backup may have. Their stanzas fit in the header that
	// age accepts (2 MiB, 1,024 stanzas).
	MaxRecipients = 100
	// maxKeyFileBytes bounds a file with recipients or identities.
	maxKeyFileBytes = 1 << 20
	// ageIntro begins every file that is encrypted by age, of each version.
	ageIntro = "age-encryption.org/"
)

// Reason is why a file is not restored.
type Reason string

const (
	// IdentityMissing: the file is encrypted, and no identity was given.
	IdentityMissing Reason = "IdentityMissing"
	// WrongIdentity: no given identity opens the file.
	WrongIdentity Reason = "WrongIdentity"
	// NotEncrypted: identities were given, and the file is not encrypted.
	NotEncrypted Reason = "NotEncrypted"
	// Damaged: the file is not whole, was changed, or is no backup.
	Damaged Reason = "Damaged"
)

// refusals has the sentence of each reason, after the name of the file.
var refusals = map[Reason]string{
	IdentityMissing: "is encrypted by age; restore it with --identity-file FILE, which has an identity of one of its recipients",
	WrongIdentity:   "is encrypted to other recipients than those of the identities in --identity-file, or its header was changed",
	NotEncrypted:    "is not encrypted by age, or its beginning was changed; a backup that was saved without --recipient is restored without --identity-file",
	Damaged:         "is damaged or no backup, and nothing of it is restored; take another copy of the backup",
}

// RefusedError reports a file that is not restored. Nothing was written then.
type RefusedError struct {
	File   string
	Reason Reason
	Err    error
}

func (e *RefusedError) Error() string {
	text := e.File + " " + refusals[e.Reason]
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *RefusedError) Unwrap() error { return e.Err }

// ParseRecipients returns the recipients in values and, one a line, in the named file; "-" is stdin
// and nil is no file. A recipient is an age key (age1…), or the line of an SSH key (ssh-ed25519 or
// ssh-rsa). A file without a recipient is an error, so that no backup is plain by accident.
func ParseRecipients(values []string, file *string, stdin io.Reader) ([]age.Recipient, error) {
	var recipients []age.Recipient
	for i, value := range values {
		r, err := parseRecipient(value)
		if err != nil {
			return nil, fmt.Errorf("--recipient, number %d: %w", i+1, err)
		}
		recipients = append(recipients, r)
	}
	if file != nil {
		more, err := readRecipients(*file, stdin)
		if err != nil {
			return nil, err
		}
		recipients = append(recipients, more...)
	}
	if len(recipients) > MaxRecipients {
		return nil, fmt.Errorf("there are %d recipients; a backup has at most %d", len(recipients), MaxRecipients)
	}
	return recipients, nil
}

func readRecipients(file string, stdin io.Reader) ([]age.Recipient, error) {
	content, err := readKeyFile(file, stdin)
	if err != nil {
		return nil, fmt.Errorf("read --recipients-file: %w", err)
	}
	var recipients []age.Recipient
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r, err := parseRecipient(line)
		if err != nil {
			return nil, fmt.Errorf("line %d of --recipients-file %s: %w", number, file, err)
		}
		recipients = append(recipients, r)
	}
	if len(recipients) == 0 {
		return nil, fmt.Errorf("%s has no recipient; write one a line, or leave out --recipients-file for a plain backup", file)
	}
	return recipients, nil
}

// parseRecipient never repeats its argument in an error, which could be a private key.
func parseRecipient(text string) (age.Recipient, error) {
	var (
		r   age.Recipient
		err error
	)
	switch text = strings.TrimSpace(text); {
	case strings.HasPrefix(text, "age1pq1"):
		r, err = age.ParseHybridRecipient(text)
	case strings.HasPrefix(text, "age1"):
		r, err = age.ParseX25519Recipient(text)
	case strings.HasPrefix(text, "ssh-"):
		r, err = agessh.ParseRecipient(text)
	default:
		err = errors.New("it begins neither with age1 nor with ssh-ed25519 or ssh-rsa")
	}
	return r, err
}

// ParseIdentities returns the identities in the named file; "-" is stdin. The file has age identities,
// one a line, or one SSH private key. A file with a passphrase is refused with the way out.
func ParseIdentities(file string, stdin io.Reader) ([]age.Identity, error) {
	content, err := readKeyFile(file, stdin)
	if err != nil {
		return nil, fmt.Errorf("read --identity-file: %w", err)
	}
	if bytes.HasPrefix(content, []byte(ageIntro)) || bytes.HasPrefix(content, []byte("-----BEGIN AGE ")) {
		return nil, fmt.Errorf("the identity in %s is encrypted itself; decrypt it first, without a file: age --decrypt FILE | atoll-hub restore --identity-file -", file)
	}
	if !bytes.HasPrefix(content, []byte("-----BEGIN ")) {
		identities, err := age.ParseIdentities(bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("read --identity-file %s: %w", file, err)
		}
		return identities, nil
	}
	identity, err := agessh.ParseIdentity(content)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("the SSH key in %s has a passphrase; make a copy without one: ssh-keygen -p -N '' -f COPY", file)
	}
	if err != nil {
		return nil, fmt.Errorf("read the SSH key in %s: %w", file, err)
	}
	return []age.Identity{identity}, nil
}

func readKeyFile(name string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if name == "" {
		return nil, errors.New("the flag names no file")
	}
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	content, err := io.ReadAll(io.LimitReader(from, maxKeyFileBytes+1))
	if err == nil && len(content) > maxKeyFileBytes {
		err = fmt.Errorf("%s has more than %d bytes", name, maxKeyFileBytes)
	}
	return content, err
}

// encryptOrPassThrough returns the writer of the archive into out. Closing it ends the archive, and not out.
func encryptOrPassThrough(out io.Writer, recipients []age.Recipient) (io.WriteCloser, error) {
	if len(recipients) == 0 {
		return plainWriter{out}, nil
	}
	w, err := age.Encrypt(out, recipients...)
	if err != nil {
		return nil, fmt.Errorf("encrypt the backup: %w", err)
	}
	return w, nil
}

type plainWriter struct{ io.Writer }

func (plainWriter) Close() error { return nil }

// openArchive returns the archive in a file, decrypted where it is encrypted. An encrypted archive is
// authentic once it was read to its end without an error, and not before.
func openArchive(file string, content io.Reader, identities []age.Identity) (io.Reader, error) {
	buffered := bufio.NewReader(content)
	intro, err := buffered.Peek(len(ageIntro))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	encrypted := string(intro) == ageIntro
	switch {
	case encrypted && len(identities) == 0:
		return nil, &RefusedError{File: file, Reason: IdentityMissing}
	case !encrypted && len(identities) > 0:
		return nil, &RefusedError{File: file, Reason: NotEncrypted}
	case !encrypted:
		return buffered, nil
	}
	archive, err := age.Decrypt(buffered, identities...)
	var mismatch *age.NoIdentityMatchError
	if errors.As(err, &mismatch) {
		return nil, &RefusedError{File: file, Reason: WrongIdentity}
	}
	return archive, err
}
