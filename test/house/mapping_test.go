package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// kindSchemas returns the schemas of all kinds of a group in api/crds, by kind.
func kindSchemas(t *testing.T, group string) map[string]schema {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(), "api/crds", group+"_*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs of %s: %v", group, err)
	}
	out := map[string]schema{}
	for _, file := range files {
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema schema `json:"openAPIV3Schema"`
					}
				}
			}
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &crd)
		}
		if err != nil || len(crd.Spec.Versions) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		out[crd.Spec.Names.Kind] = crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	return out
}

// hasPath reports whether a schema has the field of a path such as spec.taints[].key.
func (s schema) hasPath(path string) bool {
	for _, name := range strings.Split(path, ".") {
		field, lists := strings.CutSuffix(name, "[]")
		next, ok := s.Properties[field]
		if !ok || lists && next.Items == nil {
			return false
		}
		if s = next; lists {
			s = *next.Items
		}
	}
	return true
}

// mappingRow is a row of a table of fields.
type mappingRow struct{ kind, field, target, note string }

var quotedPath = regexp.MustCompile("^`([^`]+)`$")

// readMappingRows returns the rows of the tables of fields in a page. A heading names the kind.
func readMappingRows(text string) (rows []mappingRow) {
	kind := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			kind = heading
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 3 {
			continue
		}
		if field := quotedPath.FindStringSubmatch(strings.TrimSpace(cells[0])); field != nil {
			rows = append(rows, mappingRow{kind, field[1], strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])})
		}
	}
	return rows
}

// findProblem returns what is wrong with a row; empty: nothing.
func (r mappingRow) findProblem(kinds map[string]schema) string {
	kind, path := r.kind, r.field
	switch quoted := quotedPath.FindStringSubmatch(r.target); {
	case r.target == "none" && r.note == "":
		return "says none, and not why"
	case r.target == "none", strings.HasPrefix(r.target, "[") && r.note != "":
		return ""
	case r.target == "same":
	case quoted == nil:
		return "the second column must be same, none, a link with a note or one field"
	case quoted[1][0] >= 'A' && quoted[1][0] <= 'Z':
		kind, path, _ = strings.Cut(quoted[1], ".")
	default:
		path = quoted[1]
	}
	if s, ok := kinds[kind]; !ok || !s.hasPath(path) {
		return "Atoll has no field " + kind + "." + path
	}
	return ""
}

// TestMappingPagesNameFieldsOfTheSchema checks the pages for users of other systems: each field
// of Atoll that they name exists, and a field without a counterpart has a reason.
func TestMappingPagesNameFieldsOfTheSchema(t *testing.T) {
	kinds := kindSchemas(t, "atoll.dev")
	pages, err := filepath.Glob(filepath.Join(root(), "docs", "from-*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		rows, seen := readMappingRows(string(text)), map[string]bool{}
		if len(rows) == 0 {
			t.Errorf("%s has no table of fields", filepath.Base(page))
		}
		for _, r := range rows {
			name := r.kind + "." + r.field
			if problem := r.findProblem(kinds); problem != "" {
				t.Errorf("%s: %s: %s", filepath.Base(page), name, problem)
			}
			if seen[name] {
				t.Errorf("%s: %s has two rows", filepath.Base(page), name)
			}
			seen[name] = true
		}
		index, err := os.ReadFile(filepath.Join(root(), "docs", "README.md"))
		if err != nil || !strings.Contains(string(index), filepath.Base(page)) {
			t.Errorf("docs/README.md does not list %s: %v", filepath.Base(page), err)
		}
	}
}

// TestMappingOfKarmadaHasEveryField checks that each field of Karmada's kinds in this tree has a
// row.
func TestMappingOfKarmadaHasEveryField(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(), "docs", "from-karmada.md"))
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, r := range readMappingRows(string(text)) {
		have = append(have, r.kind+"."+r.field)
	}
	for kind, s := range kindSchemas(t, "config.karmada.io") {
		s.Properties["spec"].visitLeaves(kind+".spec", func(path string) {
			if !slices.Contains(have, path) {
				t.Errorf("docs/from-karmada.md has no row for %s", path)
			}
		})
	}
}

// TestMappingRowsAreChecked checks that the checks of these pages can fail.
func TestMappingRowsAreChecked(t *testing.T) {
	kinds := kindSchemas(t, "atoll.dev")
	const page = "## PropagationPolicy\n| F | A | N |\n|---|---|---|\n| `spec.priority` | same | |\n| `spec.prio` | `spec.priority` | |\n| `spec.x` | `Cluster.spec.taints[].key` | |\n| `spec.placement.clusterAffinity` | same | |\n" +
		"| `spec.lost` | none | a reason |\n| `spec.lost` | none | |\n| `spec.missing` | same | |\n| `spec.x` | `Cluster.spec.taint` | |\n| `spec.x` | `Nothing.spec` | |\n| `spec.x` | word | |\n| `spec.priority[]` | same | |\n| plain | same | |\n"
	var wrong []string
	for _, r := range readMappingRows(page) {
		if r.findProblem(kinds) != "" {
			wrong = append(wrong, r.field+" "+r.target+" "+r.note)
		}
	}
	want := []string{"spec.lost none ", "spec.missing same ", "spec.x `Cluster.spec.taint` ", "spec.x `Nothing.spec` ", "spec.x word ", "spec.priority[] same "}
	if !slices.Equal(wrong, want) {
		t.Errorf("wrong are %q, want %q", wrong, want)
	}
}
