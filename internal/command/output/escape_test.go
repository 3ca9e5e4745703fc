package output

import (
	"bytes"
	"testing"
)

func TestWhatControlsATerminalIsEscaped(t *testing.T) {
	p := &Palette{On: true}
	for in, want := range map[string]string{
		"plain\n":                          "plain\n",
		"a\x1b]0;title\x07\n":              `a\x1b]0;title\x07` + "\n",
		"x\x1b[2J" + p.PaintText("o", "y"): `x\x1b[2J` + "\x1b[36my\x1b[0m",
		"\x1b[8mhidden":                    `\x1b[8mhidden`,
	} {
		var out bytes.Buffer
		if n, err := NewEscapingWriter(&out).Write([]byte(in)); n != len(in) || err != nil || out.String() != want {
			t.Errorf("%q is written as %q (%d, %v), want %q", in, out.String(), n, err, want)
		}
	}
	var out bytes.Buffer
	table := NewTable(&out, "A", "B")
	table.AddRow("x\nforged   row", "y\tz")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "A                   B\nx\\x0aforged   row   y\\x09z\n"; out.String() != want {
		t.Errorf("the table is %q, want %q", out.String(), want)
	}
}
