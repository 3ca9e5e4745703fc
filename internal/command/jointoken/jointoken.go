// Package jointoken holds the flags of a join token that several commands share.
//
// Contract: Read returns the token and reads each source at most once. A token as the value of a
// flag is accepted, with a warning, since other users of the machine can read arguments. No error
// and no warning contains a token.
package jointoken

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// Variable is the environment variable with the token, where no flag is given.
const Variable = "ATOLL_TOKEN"

// maxFileBytes is more than a token and its blanks have.
const maxFileBytes = 4 << 10

// TokenFlags are the sources of a token.
type TokenFlags struct{ value, file string }

// AddTo adds the flags. when states when a token is needed.
func (f *TokenFlags) AddTo(flags *pflag.FlagSet, when string) {
	flags.StringVar(&f.file, "token-file", "", "file with the join token, - for standard input; default $"+Variable+". "+when)
	flags.StringVar(&f.value, "token", "", "join token. Other users of the machine can read it: prefer --token-file")
}

// AreSet reports whether a flag is given.
func (f *TokenFlags) AreSet() bool { return f.value != "" || f.file != "" }

// Read returns the token; empty if there is none. The error for a missing file is fs.ErrNotExist.
func (f *TokenFlags) Read(stdin io.Reader, warnings io.Writer) (string, error) {
	switch {
	case f.value != "" && f.file != "":
		return "", errors.New("--token and --token-file exclude each other")
	case f.file != "":
		token, err := readTokenFile(f.file, stdin)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		return token, nil
	case f.value != "":
		fmt.Fprintln(warnings, "Warning: other users of this machine can read the token in --token; use --token-file FILE, or - for standard input")
		return f.value, nil
	}
	return os.Getenv(Variable), nil
}

// readTokenFile reads a token from a file, or from stdin where the name is "-".
func readTokenFile(name string, stdin io.Reader) (string, error) {
	from := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxFileBytes))
	if err != nil {
		return "", fmt.Errorf("read the join token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
