// Package logging makes the loggers of the programs.
//
// Contract: a value of a line has at most MaxValueBytes: an error of an API may quote a whole
// object. Handlers escape control characters. A logger is safe for concurrent use.
package logging

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// MaxValueBytes bounds a value in a line of the log.
const MaxValueBytes = 2 << 10

// New returns a logger that writes lines of the format, text or json, from a level on.
func New(out io.Writer, format string, level slog.Level) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: cutValues(formatText)})), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level, ReplaceAttr: cutValues(formatJSON)})), nil
	}
	return nil, fmt.Errorf("--log-format is %q: it is text or json", format)
}

// formatText and formatJSON return a structure as the handlers write it.
func formatText(v any) string { return fmt.Sprintf("%+v", v) }

func formatJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // the handler writes the error
	}
	return string(text)
}

// cutValues returns a function that cuts the value of an attribute to MaxValueBytes. format returns
// the text of a structure.
func cutValues(format func(any) string) func([]string, slog.Attr) slog.Attr {
	return func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case string:
			if len(v) > MaxValueBytes {
				a.Value = slog.StringValue(cutText(v))
			}
		case error:
			a.Value = slog.StringValue(cutText(v.Error()))
		default:
			if a.Value.Kind() != slog.KindAny {
				break
			}
			if text := format(v); len(text) > MaxValueBytes {
				a.Value = slog.StringValue(cutText(text))
			}
		}
		return a
	}
}

// cutText cuts a text to MaxValueBytes, and marks the cut.
func cutText(s string) string {
	if len(s) <= MaxValueBytes {
		return s
	}
	return strings.ToValidUTF8(s[:MaxValueBytes], "") + fmt.Sprintf("... (cut, it had %d bytes)", len(s))
}
