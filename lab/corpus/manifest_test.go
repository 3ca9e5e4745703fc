package corpus

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// writeFiles writes files below a new directory; a name that ends with a slash is a directory.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestManifestsOfADirectory(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"b.yaml": "", "a.json": "", ".hidden.yaml": "", "notes.txt": "", differencesFile: "[]",
		"dir/x.yaml": "", "chart/Chart.yaml": "", "kust/kustomization.yaml": "",
	})
	if err := os.Symlink(filepath.Join(dir, "b.yaml"), filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	list, err := listManifests(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]manifestForm{}
	var names []string
	for _, m := range list {
		names, forms[m.name] = append(names, m.name), m.form
	}
	if !slices.Equal(names, []string{"a", "b", "chart", "dir", "kust"}) {
		t.Errorf("the manifests are %v", names)
	}
	if forms["chart"] != formChart || forms["kust"] != formKustomization || forms["dir"] != formDirectory || forms["a"] != formFile {
		t.Errorf("the forms are %v", forms)
	}
	if list, err = listManifests(dir, regexp.MustCompile("^[ab]$")); err != nil || len(list) != 2 {
		t.Errorf("two are chosen: %v, %v", list, err)
	}
}

func TestBadDirectoriesAreRefused(t *testing.T) {
	many := map[string]string{}
	for i := range maxManifests + 1 {
		many[fmt.Sprintf("m%d.yaml", i)] = ""
	}
	for want, files := range map[string]map[string]string{
		"no manifest to run":      {"notes.txt": ""},
		"two manifests":           {"a.yaml": "", "a.json": ""},
		"manifests; at most 1000": many,
	} {
		if _, err := listManifests(writeFiles(t, files), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestFilesAreBounded(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"big.yaml": strings.Repeat("#", maxManifestBytes+1), "half/a.yaml": strings.Repeat("#", maxManifestBytes/2+1),
		"half/b.yaml": strings.Repeat("#", maxManifestBytes/2+1), "none/notes.txt": "",
	})
	for _, read := range []func() ([]byte, error){
		func() ([]byte, error) { return readManifestFile(filepath.Join(dir, "big.yaml")) },
		func() ([]byte, error) { return readManifestFile(dir) },
		func() ([]byte, error) { return readManifestDir(filepath.Join(dir, "half")) },
		func() ([]byte, error) { return readManifestDir(filepath.Join(dir, "none")) },
	} {
		if data, err := read(); err == nil {
			t.Errorf("%d bytes are read", len(data))
		}
	}
	var out boundedBuffer
	if n, err := io.Copy(&out, io.LimitReader(zeros{}, 3*maxOutputBytes)); n != 3*maxOutputBytes || err != nil {
		t.Errorf("a copy returns %d, %v", n, err)
	}
	if out.kept.Len() != maxOutputBytes || !out.truncated {
		t.Errorf("the buffer has %d bytes, truncated is %t", out.kept.Len(), out.truncated)
	}
}

// zeros is a program that prints without an end.
type zeros struct{}

// Read fills the buffer.
func (zeros) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte{0}, len(p))), nil }

func TestFilesOfADirectoryAreJoined(t *testing.T) {
	dir := writeFiles(t, map[string]string{"2.yaml": "b: 2", "1.yml": "a: 1", "x.txt": "no"})
	data, err := readManifestDir(dir)
	if err != nil || string(data) != "a: 1\n---\nb: 2" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestModesOfManifests(t *testing.T) {
	for text, want := range map[string]writeMode{
		"kind: A":                  modeApply,
		"# corpus: apply\nkind: A": modeApply,
		"# Text.\n# corpus: server-side\nkind: A": modeServerSide,
		"# corpus: create":                        modeCreate,
		"a: 1\n\n\n\n\n# corpus: create":          modeApply,
		"# corpus: patch":                         "",
	} {
		if got, err := parseWriteMode([]byte(text)); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestObjectsOfAStream(t *testing.T) {
	objects, err := parseObjects([]byte("# nothing\n---\n---\nnull\n---\nkind: A\n---\n{kind: List, items: [{kind: B}, {kind: C}]}\n---\nkind: CList\nitems: [{kind: D}]\n---\nkind: List\n"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
	}
	if !slices.Equal(kinds, []string{"A", "B", "C", "D", "List"}) {
		t.Errorf("the kinds are %v", kinds)
	}
	for _, bad := range []string{"a: [", "- 1", strings.Repeat("---\nkind: A\n", maxDocuments+1)} {
		if objects, err := parseObjects([]byte(bad)); err == nil {
			t.Errorf("%.20q has %d objects", bad, len(objects))
		}
	}
}

func TestListOfExpectedDifferences(t *testing.T) {
	if list, err := readExpectedDifferences(writeFiles(t, map[string]string{"a.yaml": ""})); err != nil || list != nil {
		t.Errorf("without a list: %v, %v", list, err)
	}
	if list, err := readExpectedDifferences(writeFiles(t, map[string]string{differencesFile: "- {manifest: a, path: b, reason: c}"})); err != nil || len(list) != 1 {
		t.Errorf("a list of one: %v, %v", list, err)
	}
	if _, err := readExpectedDifferences(writeFiles(t, map[string]string{differencesFile: "- {}"})); err == nil || !strings.Contains(err.Error(), differencesFile) {
		t.Errorf("a bad list: %v", err)
	}
}
