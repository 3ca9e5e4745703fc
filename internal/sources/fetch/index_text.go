package fetch

import (
	"bytes"
	"encoding/json"
	"regexp"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
)

// indexText is an index.yaml. An index has up to thousands of charts, and a decoder takes seconds and a hundred megabytes for them.
// So the text is divided by charts where it has the form that Helm writes, and only the part of a chart is decoded.
type indexText struct {
	// parts are the lines of each chart; nil where the text has another form.
	parts map[string][]byte
	// entries are all versions of an index of another form.
	entries map[string][]indexEntry
	// decoded are the parts that were decoded.
	decoded map[string]decodedChart
}

// decodedChart is what the part of a chart was decoded to.
type decodedChart struct {
	versions []indexEntry
	err      error
}

// indexEntry is a version of a chart in an index.
type indexEntry struct {
	Version string   `json:"version"`
	URLs    []string `json:"urls"`
	Digest  string   `json:"digest"`
}

var errNoIndex = newFailure(atoll.ReasonRepositoryUnreachable, "index.yaml of the server is no index of a Helm repository")

// readIndex reads an index.
func readIndex(text []byte) (*indexText, error) {
	if parts, ok := divideIndex(text); ok {
		return &indexText{parts: parts, decoded: map[string]decodedChart{}}, nil
	}
	entries, err := decodeIndex(text)
	return &indexText{entries: entries}, err
}

// findVersions returns the versions of a chart; false without the chart. Its part is decoded once.
func (i *indexText) findVersions(chart string) ([]indexEntry, bool, error) {
	if i.parts == nil {
		found, ok := i.entries[chart]
		return found, ok, nil
	}
	part, ok := i.parts[chart]
	if !ok {
		return nil, false, nil
	}
	known, ok := i.decoded[chart]
	if !ok {
		var entries map[string][]indexEntry
		entries, known.err = decodeIndex(append([]byte("apiVersion: v1\nentries:\n"), part...))
		known.versions = entries[chart]
		i.decoded[chart] = known
	}
	return known.versions, true, known.err
}

// decodeIndex returns the versions of each chart.
func decodeIndex(text []byte) (map[string][]indexEntry, error) {
	var index struct {
		APIVersion string                  `json:"apiVersion"`
		Entries    map[string][]indexEntry `json:"entries"`
	}
	decode := func(text []byte, into any) error { return yaml.Unmarshal(text, into) }
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		decode = json.Unmarshal
	}
	if err := decode(text, &index); err != nil || index.APIVersion == "" {
		return nil, errNoIndex
	}
	return index.Entries, nil
}

// The lines of an index of the form that Helm writes: a field, and the name of a chart in entries. The versions of a chart
// are items of its indentation, or lines of a deeper one.
var (
	indexField = regexp.MustCompile(`^[A-Za-z]+:( |$)`)
	indexChart = regexp.MustCompile(`^  ([A-Za-z0-9][A-Za-z0-9._-]*):$`)
)

// divideIndex returns the lines of each chart; false for a text of another form.
func divideIndex(text []byte) (map[string][]byte, bool) {
	d := indexDivider{parts: map[string][]byte{}}
	for at := 0; at < len(text); {
		end := at + bytes.IndexByte(text[at:], '\n') + 1
		if end == at {
			end = len(text)
		}
		if !d.addLine(text, at, end) {
			return nil, false
		}
		at = end
	}
	d.endPart(text, len(text))
	return d.parts, d.hasVersion && d.hasEntries
}

// indexDivider divides an index by its lines.
type indexDivider struct {
	parts                  map[string][]byte
	hasVersion, hasEntries bool
	// inEntries is true below entries, and chart began at start.
	inEntries bool
	chart     string
	start     int
}

// endPart ends the lines of a chart.
func (d *indexDivider) endPart(text []byte, at int) {
	if d.chart != "" {
		d.parts[d.chart] = text[d.start:at]
	}
	d.chart = ""
}

// addLine adds the line from at to end; false where it is of another form.
func (d *indexDivider) addLine(text []byte, at, end int) bool {
	line := bytes.TrimRight(text[at:end], "\r\n")
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		return true
	case line[0] != ' ':
		d.endPart(text, at)
		return d.addField(line)
	case !d.inEntries:
		return true
	case bytes.HasPrefix(line, []byte("   ")) || bytes.HasPrefix(line, []byte("  - ")):
		return d.chart != ""
	}
	d.endPart(text, at)
	m := indexChart.FindSubmatch(line)
	if m == nil || d.parts[string(m[1])] != nil {
		return false
	}
	d.chart, d.start = string(m[1]), at
	return true
}

// addField adds a line of a field of the index.
func (d *indexDivider) addField(line []byte) bool {
	if !indexField.Match(line) {
		return false
	}
	d.inEntries = bytes.Equal(line, []byte("entries:"))
	if !d.inEntries && bytes.HasPrefix(line, []byte("entries:")) || d.inEntries && d.hasEntries {
		return false
	}
	d.hasEntries = d.hasEntries || d.inEntries
	d.hasVersion = d.hasVersion || bytes.HasPrefix(line, []byte("apiVersion: "))
	return true
}
