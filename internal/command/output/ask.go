package output

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// AskPerson prints a question that a person answers by yes or no. No answer is no.
func AskPerson(in io.Reader, out io.Writer, question string) (bool, error) {
	if _, err := fmt.Fprint(out, question+" [y/N] "); err != nil {
		return false, err
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	_, err = fmt.Fprintln(out, "Nothing is changed.")
	return false, err
}
