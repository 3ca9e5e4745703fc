// Package render makes objects of the files of a repository.
//
// Contract: functions are pure, and values in are not changed. Input is hostile: sizes are checked
// before a parser sees it, aliases of YAML are bounded, and no message has a value of a field. An
// object comes with its file and line. One problem makes the whole content incomplete, so callers
// act on no part of it.
package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bounds of the content of one Source.
const (
	// MaxFileBytes is the largest file.
	MaxFileBytes = 1 << 20
	// MaxFiles is the most files that are read.
	MaxFiles = 5000
	// MaxObjects is the most objects.
	MaxObjects = 2000
	// MaxContentBytes is the most bytes of all objects in JSON.
	MaxContentBytes = 4 << 20
	// MaxProblems is the most problems that are reported.
	MaxProblems = 20
)

// Object is one object and its place.
type Object struct {
	// Fields in JSON's types.
	Fields map[string]any `json:"fields"`
	File   string         `json:"file"`
	Line   int            `json:"line"`
	// Generated are the fields that differ between two renderings of the same inputs, as JSON Pointers.
	Generated []string `json:"generated,omitempty"`
	// ListAnnotations are those of the Lists that it is an item of. They stay in the process that reads.
	ListAnnotations []map[string]any `json:"-"`
}

// UnmarshalJSON reads an object that another process rendered, with whole numbers as int64.
func (o *Object) UnmarshalJSON(raw []byte) error {
	type plain Object // without this method
	var read plain
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&read); err != nil {
		return err
	}
	*o = Object(read)
	for key, v := range o.Fields {
		o.Fields[key] = convertNumbers(v)
	}
	return nil
}

// Problem is why content is incomplete.
type Problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// Format returns the problem with its place.
func (p Problem) Format() string {
	if p.Line == 0 {
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
}

// IsContentFile reports whether a file may hold objects. Files whose names begin with a dot, and those of
// such directories, do not.
func IsContentFile(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") {
			return false
		}
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(path.Ext(name)))
}

// CleanPath returns a path without ./ and slashes at its ends; empty for the whole repository.
func CleanPath(dir string) string {
	if dir = strings.Trim(path.Clean("/"+dir), "/"); dir == "." {
		return ""
	}
	return dir
}

// MatchPattern reports whether a pattern matches a file or a directory above it. * stands for any characters but
// /, ? for one, and ** for any directories. A pattern without / is for names in every directory.
func MatchPattern(pattern, name string) bool {
	pattern = strings.Trim(pattern, "/")
	if !strings.Contains(pattern, "/") {
		pattern = "**/" + pattern
	}
	parts, names := strings.Split(pattern, "/"), strings.Split(name, "/")
	// reached[i] is true when the first i parts match the names so far.
	reached := make([]bool, len(parts)+1)
	reached[0] = true
	skipDirectories(parts, reached)
	for _, one := range names {
		next := make([]bool, len(parts)+1)
		for i, part := range parts {
			switch {
			case !reached[i]:
			case part == "**":
				next[i] = true
			default:
				matched, err := path.Match(part, one)
				next[i+1] = next[i+1] || matched && err == nil
			}
		}
		skipDirectories(parts, next)
		if next[len(parts)] {
			return true
		}
		reached = next
	}
	return false
}

// skipDirectories lets each ** stand for no directory, too.
func skipDirectories(parts []string, reached []bool) {
	for i, part := range parts {
		if reached[i] && part == "**" {
			reached[i+1] = true
		}
	}
}
