package session

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"atoll.dev/atoll/internal/atoll"
)

var (
	protoMessage = regexp.MustCompile(`^message (\w+) \{`)
	protoField   = regexp.MustCompile(`^  +(?:repeated )?(?:map<\w+, \w+>|[\w.]+) (\w+) = \d+;(?: // (.*))?$`)
)

// Each field of session.proto states its bound behind it, as frameLimits has it. A failure prints the
// comment that the field needs.
func TestTheProtocolStatesItsBounds(t *testing.T) {
	const path = "sessionpb/session.proto"
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fields, message, seen := messageFields(), "", 0
	for i, line := range strings.Split(string(source), "\n") {
		if m := protoMessage.FindStringSubmatch(line); m != nil {
			message = m[1]
		}
		m := protoField.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := protoreflect.FullName(message + "." + m[1])
		f, known := fields[name]
		if !known {
			t.Errorf("%s:%d: %s is in no message of the protocol", path, i+1, name)
			continue
		}
		seen++
		if want := statedBound(f, frameLimits[name]); m[2] != want {
			t.Errorf("%s:%d: the comment of %s is %q, want %q", path, i+1, name, m[2], want)
		}
	}
	if seen != len(fields) {
		t.Errorf("%d fields are found in %s; the protocol has %d", seen, path, len(fields))
	}
}

// statedBound returns the comment that states the bound of a field, "" for a field that needs none.
func statedBound(f protoreflect.FieldDescriptor, l fieldLimit) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("at most %d; keys of %s, values of %s", l.count, statedBytes(l.keyBytes), statedBytes(l.bytes))
	case f.IsList() && l.bytes > 0:
		return fmt.Sprintf("at most %d, of %s", l.count, statedBytes(l.bytes))
	case f.IsList():
		return fmt.Sprintf("at most %d", l.count)
	case l.bytes > 0:
		return "at most " + statedBytes(l.bytes)
	case l.max > 0:
		return "at most " + statedNumber(l.max)
	}
	return ""
}

func statedBytes(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// statedNumber writes powers of two, those less one, and the last time as such.
func statedNumber(n int64) string {
	if n == atoll.MaxUnixSeconds {
		return "the end of the year 9999"
	}
	for e := 20; e < 64; e++ {
		switch p := uint64(1) << e; uint64(n) {
		case p:
			return fmt.Sprintf("2^%d", e)
		case p - 1:
			return fmt.Sprintf("2^%d-1", e)
		}
	}
	return fmt.Sprint(n)
}
