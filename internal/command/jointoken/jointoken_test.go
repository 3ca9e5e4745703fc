package jointoken

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestATokenComesFromOneSource: a flag is preferred to the environment, a token as an argument
// causes a warning, and no message contains the token.
func TestATokenComesFromOneSource(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(" of-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(Variable, "of-environment")
	for _, c := range []struct {
		args, want, fails string
		warns, isSet      bool
	}{
		{args: "", want: "of-environment"},
		{args: "--token-file " + file, want: "of-file", isSet: true},
		{args: "--token-file -", want: "of-stdin", isSet: true},
		{args: "--token of-argument", want: "of-argument", warns: true, isSet: true},
		{args: "--token of-argument --token-file -", fails: "exclude each other", isSet: true},
		{args: "--token-file " + file + ".missing", fails: "--token-file", isSet: true},
	} {
		var f TokenFlags
		set := pflag.NewFlagSet("test", pflag.ContinueOnError)
		f.AddTo(set, "")
		if err := set.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		var warnings strings.Builder
		got, err := f.Read(strings.NewReader("of-stdin\n"), &warnings)
		if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%q: %q, %v", c.args, got, err)
		}
		if errors.Is(err, fs.ErrNotExist) != strings.HasSuffix(c.args, ".missing") {
			t.Errorf("%q: whether the file is missing cannot be seen from %v", c.args, err)
		}
		if said := warnings.String(); strings.Contains(said, "--token-file FILE") != c.warns || strings.Contains(said, "of-argument") {
			t.Errorf("%q: it warns %q", c.args, said)
		}
		if f.AreSet() != c.isSet {
			t.Errorf("%q: set is %t", c.args, f.AreSet())
		}
	}
}
