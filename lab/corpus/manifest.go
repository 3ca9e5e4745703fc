package corpus

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/lab/corpus/compare"
)

// differencesFile is the list of expected differences of a corpus.
const differencesFile = "differences.yaml"

// Bounds of what is read.
const (
	maxManifests     = 1000
	maxDirFiles      = 200
	maxManifestBytes = 4 << 20
	maxDocuments     = 1000
)

// manifestForm is how the files of a manifest become one stream of objects.
type manifestForm int

const (
	formFile manifestForm = iota
	formDirectory
	formKustomization
	formChart
)

// manifest is an entry of the corpus.
type manifest struct {
	name, path string
	form       manifestForm
}

// writeMode is how kubectl writes a manifest.
type writeMode string

const (
	modeApply      writeMode = "apply"
	modeServerSide writeMode = "server-side"
	modeCreate     writeMode = "create"
)

// modeComment in the first lines of a file states the mode.
var modeComment = regexp.MustCompile(`(?m)^# corpus: *(\S+) *$`)

// modeCommentLines are the lines in which a modeComment counts.
const modeCommentLines = 5

// listManifests returns the manifests of a directory whose names match, sorted.
func listManifests(dir string, only *regexp.Regexp) ([]manifest, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the corpus: %w", err)
	}
	var out []manifest
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.Name() == differencesFile {
			continue
		}
		m, ok := newManifest(dir, e)
		if !ok || only != nil && !only.MatchString(m.name) {
			continue
		}
		if slices.ContainsFunc(out, func(o manifest) bool { return o.name == m.name }) {
			return nil, fmt.Errorf("the corpus has two manifests of the name %q: rename one", m.name)
		}
		out = append(out, m)
	}
	switch {
	case len(out) == 0:
		return nil, fmt.Errorf("%s has no manifest to run: it needs YAML files, directories with YAML files, or charts", dir)
	case len(out) > maxManifests:
		return nil, fmt.Errorf("%s has %d manifests; at most %d are run: choose some with --only", dir, len(out), maxManifests)
	}
	return out, nil
}

// newManifest returns the manifest of a directory entry. ok is false for other files.
func newManifest(dir string, e os.DirEntry) (m manifest, ok bool) {
	m = manifest{name: e.Name(), path: filepath.Join(dir, e.Name())}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			_, err := os.Stat(filepath.Join(m.path, name))
			return err == nil
		})
	}
	switch {
	case e.Type().IsRegular() && isManifestFile(e.Name()):
		m.name = strings.TrimSuffix(e.Name(), filepath.Ext(e.Name()))
		return m, true
	case !e.IsDir():
		return m, false
	case has("Chart.yaml"):
		m.form = formChart
	case has("kustomization.yaml", "kustomization.yml", "Kustomization"):
		m.form = formKustomization
	default:
		m.form = formDirectory
	}
	return m, true
}

func isManifestFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// readManifestFile reads a regular file up to the bound.
func readManifestFile(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err == nil && len(data) > maxManifestBytes {
		err = fmt.Errorf("%s has more than %d bytes", path, maxManifestBytes)
	}
	return data, err
}

// readManifestDir joins the files of a directory in the order of their names, as kubectl does.
func readManifestDir(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if len(entries) > maxDirFiles {
		return nil, fmt.Errorf("%s has %d files; at most %d are read", dir, len(entries), maxDirFiles)
	}
	var parts [][]byte
	size := 0
	for _, e := range entries {
		if !e.Type().IsRegular() || !isManifestFile(e.Name()) {
			continue
		}
		data, err := readManifestFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if size += len(data); size > maxManifestBytes {
			return nil, fmt.Errorf("the files of %s have more than %d bytes", dir, maxManifestBytes)
		}
		parts = append(parts, data)
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%s has no YAML file", dir)
	}
	return bytes.Join(parts, []byte("\n---\n")), nil
}

// parseWriteMode returns the mode that the first lines of a stream state.
func parseWriteMode(stream []byte) (writeMode, error) {
	lines := bytes.SplitN(stream, []byte("\n"), modeCommentLines+1)
	head := bytes.Join(lines[:min(len(lines), modeCommentLines)], []byte("\n"))
	found := modeComment.FindSubmatch(head)
	if found == nil {
		return modeApply, nil
	}
	mode := writeMode(found[1])
	if !slices.Contains([]writeMode{modeApply, modeServerSide, modeCreate}, mode) {
		return "", fmt.Errorf("%q is no mode: use %s, %s or %s", found[1], modeApply, modeServerSide, modeCreate)
	}
	return mode, nil
}

// parseObjects returns the objects of a stream in their order, those of Lists included.
func parseObjects(stream []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		content := map[string]any{}
		if document, err = yaml.YAMLToJSON(document); err == nil {
			err = json.Unmarshal(document, &content)
		}
		if err != nil {
			return nil, err
		}
		if out = append(out, documentObjects(content)...); len(out) > maxDocuments {
			return nil, fmt.Errorf("it has more than %d objects", maxDocuments)
		}
	}
}

// documentObjects returns the objects of a document: none, one, or those of a List.
func documentObjects(content map[string]any) (out []*unstructured.Unstructured) {
	if len(content) == 0 {
		return nil
	}
	object := &unstructured.Unstructured{Object: content}
	items, ok := content["items"].([]any)
	if !ok || !strings.HasSuffix(object.GetKind(), "List") {
		return []*unstructured.Unstructured{object}
	}
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, &unstructured.Unstructured{Object: m})
		}
	}
	return out
}

// readExpectedDifferences reads the list of expected differences of a corpus, if it has one.
func readExpectedDifferences(dir string) ([]compare.ExpectedDifference, error) {
	data, err := readManifestFile(filepath.Join(dir, differencesFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := compare.ParseExpectedDifferences(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", differencesFile, err)
	}
	return list, nil
}
