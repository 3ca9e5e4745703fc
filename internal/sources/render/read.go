package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"
)

// Reader collects the objects of files. The zero value is ready.
type Reader struct {
	Objects  []Object
	Problems []Problem
	files    int
	bytes    int
}

// ReportProblem records a problem.
func (r *Reader) ReportProblem(file string, line int, format string, args ...any) {
	if len(r.Problems) < MaxProblems {
		r.Problems = append(r.Problems, Problem{File: file, Line: line, Message: fmt.Sprintf(format, args...)})
	}
}

// IsFull reports whether a bound is reached, so that no further file is read.
func (r *Reader) IsFull() bool {
	return len(r.Problems) >= MaxProblems || len(r.Objects) > MaxObjects || r.files > MaxFiles || r.bytes > MaxContentBytes
}

// ReadFile reads the objects of a file.
func (r *Reader) ReadFile(name string, text []byte) {
	if r.files++; r.files > MaxFiles {
		r.ReportProblem(name, 0, "the Source has more than %d files; divide it into several", MaxFiles)
		return
	}
	if len(text) > MaxFileBytes {
		r.ReportProblem(name, 0, "the file has more than %d bytes", MaxFileBytes)
		return
	}
	for _, d := range splitDocuments(normalizeText(text)) {
		if r.IsFull() {
			return
		}
		r.readDocument(name, d)
	}
}

// normalizeText returns a text without a byte order mark, with one form of line ends.
func normalizeText(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
}

// document is the text of a YAML document and the number of the lines before it.
type document struct {
	text   []byte
	before int
}

// splitDocuments splits YAML at lines that begin with ---. The rest of such a line is of the document that it begins.
func splitDocuments(text []byte) (out []document) {
	var one document
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if rest, separator := bytes.CutPrefix(line, []byte("---")); separator && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\n")) {
			out = append(out, one)
			one = document{before: number - 1}
			line = bytes.TrimLeft(rest, " \t")
		}
		one.text = append(one.text, line...)
	}
	return append(out, one)
}

// firstLine returns the number of the first line that is neither empty nor a comment.
func (d document) firstLine() int {
	number := d.before
	for line := range bytes.Lines(d.text) {
		number++
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return number
		}
	}
	return d.before + 1
}

var errorLine = regexp.MustCompile(`line (\d+)`)

// readDocument reads the object of a document, or those of a List.
func (r *Reader) readDocument(name string, d document) {
	raw, ok := r.decodeDocument(name, d)
	if !ok || len(raw) == 0 {
		return
	}
	var fields map[string]any
	if err := unmarshalNumbers(raw, &fields); err != nil {
		r.ReportProblem(name, d.firstLine(), "it is no Kubernetes object, which is a map of fields")
		return
	}
	r.addObject(name, d.firstLine(), fields, len(raw), 0)
}

// decodeDocument returns a document as JSON, and nothing for an empty one. It reports a document that cannot be read, and returns false.
func (r *Reader) decodeDocument(name string, d document) (raw []byte, ok bool) {
	raw, err := expandDocument(d.text)
	if err != nil {
		line, message := d.firstLine(), strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
		if m := errorLine.FindStringSubmatch(message); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil {
				line = d.before + n
			}
			message = strings.TrimSpace(errorLine.ReplaceAllString(message, ""))
		}
		r.ReportProblem(name, line, "%s", oneLine(message))
		return nil, false
	}
	if !isOneDocument(d.text) {
		r.ReportProblem(name, d.firstLine(), "text follows the end of the document; begin a further document with a line ---")
		return nil, false
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, true
	}
	return raw, true
}

// expandDocument returns a document as JSON, whose bytes are bounded.
func expandDocument(text []byte) ([]byte, error) {
	if err := CheckAliases(text); err != nil {
		return nil, err
	}
	raw, err := yaml.YAMLToJSONStrict(text)
	if err == nil && len(raw) > MaxContentBytes {
		return nil, errAliases
	}
	return raw, err
}

// isOneDocument reports whether text has one document alone. A reader of the first document skips
// others in silence, and an object that is not seen would look like one that a commit dropped.
func isOneDocument(text []byte) bool {
	d := goyaml.NewDecoder(bytes.NewReader(text))
	var skipped any
	if err := d.Decode(&skipped); errors.Is(err, io.EOF) {
		return true
	} else if err != nil {
		return false
	}
	return errors.Is(d.Decode(&skipped), io.EOF)
}

// UnmarshalMap decodes a map in JSON with whole numbers as int64, as the API has them.
func UnmarshalMap(raw []byte) (out map[string]any, err error) {
	err = unmarshalNumbers(raw, &out)
	return out, err
}

// unmarshalNumbers decodes JSON with whole numbers as int64, as the API has them.
func unmarshalNumbers(raw []byte, into *map[string]any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	for key, v := range *into {
		(*into)[key] = convertNumbers(v)
	}
	return nil
}

func convertNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, one := range v {
			v[key] = convertNumbers(one)
		}
	case []any:
		for i, one := range v {
			v[i] = convertNumbers(one)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	}
	return v
}

// maxListDepth is how deep Lists may be in Lists.
const maxListDepth = 4

// addObject adds an object, or those of a List.
func (r *Reader) addObject(name string, line int, fields map[string]any, size, depth int) {
	kind, _ := fields["kind"].(string)
	_, isList := fields["items"].([]any)
	meta, _ := fields["metadata"].(map[string]any)
	if isList && strings.HasSuffix(kind, "List") && meta["name"] == nil {
		r.addItems(name, line, fields, size, depth)
		return
	}
	if problem := checkObject(fields); problem != "" {
		if path.Base(name) == chartName {
			problem = "a Helm chart is in a directory that is read as it is; state its directory in spec.paths, or exclude it"
		}
		r.ReportProblem(name, line, "%s", problem)
		return
	}
	dropServerFields(fields)
	r.bytes += size
	r.Objects = append(r.Objects, Object{Fields: fields, File: name, Line: line})
	switch {
	case len(r.Objects) > MaxObjects:
		r.ReportProblem(name, line, "the Source has more than %d objects; divide it into several", MaxObjects)
	case r.bytes > MaxContentBytes:
		r.ReportProblem(name, line, "the objects of the Source have more than %d bytes; divide it into several", MaxContentBytes)
	}
}

// addItems adds the items of a List, each with the annotations of the List.
func (r *Reader) addItems(name string, line int, list map[string]any, size, depth int) {
	if depth == maxListDepth {
		r.ReportProblem(name, line, "Lists are in Lists more than %d deep", maxListDepth)
		return
	}
	items, _ := list["items"].([]any)
	before := len(r.Objects)
	for _, item := range items {
		one, ok := item.(map[string]any)
		if !ok {
			r.ReportProblem(name, line, "an item of the List is no Kubernetes object")
			return
		}
		r.addObject(name, line, one, size/max(1, len(items)), depth+1)
	}
	meta, _ := list["metadata"].(map[string]any)
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		for i := before; i < len(r.Objects); i++ {
			r.Objects[i].ListAnnotations = append(r.Objects[i].ListAnnotations, annotations)
		}
	}
}

// checkObject returns why fields are no object that can be applied; empty when they are.
func checkObject(fields map[string]any) string {
	for _, f := range []string{"apiVersion", "kind"} {
		if v, ok := fields[f].(string); !ok || v == "" {
			return "it is no Kubernetes object, because it has no " + f + "; exclude files that hold none"
		}
	}
	if v := fields["apiVersion"].(string); strings.HasPrefix(v, "kustomize.config.k8s.io/") {
		return "a Kustomization is in a directory that is read as it is; state its directory in spec.paths, or exclude it"
	}
	meta, ok := fields["metadata"].(map[string]any)
	if !ok {
		return "it has no metadata"
	}
	if problem := checkNames(meta); problem != "" {
		return problem
	}
	return checkTextMaps(meta)
}

// checkNames checks the name and the namespace.
func checkNames(meta map[string]any) string {
	name, ok := meta["name"].(string)
	if !ok || name == "" {
		return "it has no metadata.name"
	}
	if strings.ContainsAny(name, "/%") || name == "." || name == ".." {
		return "metadata.name may not contain / or %"
	}
	namespace, ok := meta["namespace"].(string)
	if meta["namespace"] != nil && !ok || namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		return "metadata.namespace is no name of a namespace"
	}
	return ""
}

// checkTextMaps checks the labels and annotations.
func checkTextMaps(meta map[string]any) string {
	for _, f := range []string{"labels", "annotations"} {
		v, has := meta[f]
		if !has || v == nil {
			continue
		}
		values, ok := v.(map[string]any)
		if !ok {
			return "metadata." + f + " is no map"
		}
		for _, one := range values {
			if _, ok := one.(string); !ok {
				return "a value in metadata." + f + " is no text; quote it"
			}
		}
	}
	return ""
}

// dropServerFields removes what the API server sets, as exported objects have it.
func dropServerFields(fields map[string]any) {
	delete(fields, "status")
	meta := fields["metadata"].(map[string]any)
	for _, f := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"} {
		delete(meta, f)
	}
}

// oneLine joins the lines of a message and bounds it.
func oneLine(message string) string {
	message = strings.Join(strings.Fields(message), " ")
	const most = 300
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "..."
	}
	return message
}
