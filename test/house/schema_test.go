package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// schema is as much of an OpenAPI schema as leads to its leaves.
type schema struct {
	Properties           map[string]schema `json:"properties"`
	Items                *schema           `json:"items"`
	AdditionalProperties *schema           `json:"additionalProperties"`
}

// visitLeaves calls visit with the path of every field that holds a value: "[]" after
// a list, "{}" after a map.
func (s schema) visitLeaves(path string, visit func(string)) {
	switch {
	case len(s.Properties) > 0:
		for name, p := range s.Properties {
			p.visitLeaves(path+"."+name, visit)
		}
	case s.Items != nil:
		s.Items.visitLeaves(path+"[]", visit)
	case s.AdditionalProperties != nil:
		s.AdditionalProperties.visitLeaves(path+"{}", visit)
	default:
		visit(path)
	}
}

// wholesale lists ends of paths below which an entry may stand for all leaves:
// types that Kubernetes defines and that we pass on whole, and copies of ours.
var wholesale = []string{".labelSelector", ".conditions[]", ".clusterTolerations[]", "Bundle.spec.placement", "Source.spec.placement", "Bundle.spec.rollout", "Bundle.status.rollout.stages[]", "Placement.spec", "RolloutStrategy.spec", ".overriders.ordered[]", ".matrix.generators[]", ".merge.generators[]"}

// schemaLeaves reads the CRDs: all leaves below spec, status and their like.
func schemaLeaves(t *testing.T) []string {
	t.Helper()
	var files, paths []string
	for _, dir := range []string{"api/crds", "deploy/charts/atoll-agent/files"} {
		found, err := filepath.Glob(filepath.Join(root(), dir, "*.yaml"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no CRDs in %s: %v", dir, err)
		}
		files = append(files, found...)
	}
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
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, v := range crd.Spec.Versions {
			for name, p := range v.Schema.OpenAPIV3Schema.Properties {
				if !slices.Contains([]string{"apiVersion", "kind", "metadata"}, name) {
					p.visitLeaves(crd.Spec.Names.Kind+"."+name, func(path string) { paths = append(paths, path) })
				}
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// proofOf finds the entry of a leaf: its own, that of a wholesale path above it,
// or that of the plain kind where the leaf is of a Cluster- twin (one reconciler
// serves both).
func proofOf(proofs map[string]string, leaf string) (key string, ok bool) {
	candidates := []string{leaf}
	if plain, isTwin := strings.CutPrefix(leaf, "Cluster"); isTwin && !strings.HasPrefix(plain, ".") {
		candidates = append(candidates, plain)
	}
	for _, c := range candidates {
		if _, ok := proofs[c]; ok {
			return c, true
		}
		for _, end := range wholesale {
			if at := strings.Index(c, end); at >= 0 {
				key := c[:at+len(end)] + ".*"
				if _, ok := proofs[key]; ok {
					return key, true
				}
			}
		}
	}
	return "", false
}

func TestEveryFieldIsHonoured(t *testing.T) {
	text, err := os.ReadFile("schema_leaves.yaml")
	if err != nil {
		t.Fatal(err)
	}
	proofs := map[string]string{}
	if err := yaml.UnmarshalStrict(text, &proofs); err != nil {
		t.Fatalf("schema_leaves.yaml: %v", err)
	}
	used := map[string]bool{}
	for _, leaf := range schemaLeaves(t) {
		if key, ok := proofOf(proofs, leaf); ok {
			used[key] = true
		} else {
			t.Errorf("%s: no test proves that this field is honoured: name one in test/house/schema_leaves.yaml", leaf)
		}
	}
	tests := testFunctions(t)
	for key, steps := range proofs {
		if !used[key] {
			t.Errorf("schema_leaves.yaml: %s is no field of the CRDs, or another entry proves it already", key)
		}
		mentioned := false
		for proof := range strings.SplitSeq(steps, " + ") {
			dir, test, _ := strings.Cut(proof, "#")
			test, sub, _ := strings.Cut(test, "/")
			name := dir + "#" + test
			file, ok := tests[name]
			if !ok {
				t.Errorf("schema_leaves.yaml: %s: there is no test %q (want directory#TestName)", key, name)
				continue
			}
			words := wordsOf(t, file)
			if !words.hasPrefix(sub) {
				t.Errorf("schema_leaves.yaml: %s: nothing in %s begins with %q, as a subtest of %s would", key, file.path, sub, name)
			}
			mentioned = mentioned || words.hasMention(nameOf(key))
		}
		if !mentioned {
			t.Errorf("schema_leaves.yaml: %s: %q never mentions %q, so it cannot prove that the field is honoured", key, steps, nameOf(key))
		}
	}
}

// nameOf the field that an entry is about.
func nameOf(key string) string {
	key = strings.NewReplacer("[]", "", "{}", "", ".*", "").Replace(key)
	return key[strings.LastIndex(key, ".")+1:]
}

// words of a file with tests: its literals and identifiers, and all of the test data
// beside it if it reads any.
type words struct {
	literals []string
	text     string
}

func wordsOf(t *testing.T, s source) words {
	t.Helper()
	w := words{literals: []string{""}}
	var text strings.Builder
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			text.WriteString(n.Name + " ")
		case *ast.BasicLit:
			if v, err := strconv.Unquote(n.Value); err == nil {
				w.literals = append(w.literals, v)
				text.WriteString(v + " ")
			}
		}
		return true
	})
	if data := filepath.Join(root(), s.dir, "testdata"); strings.Contains(text.String(), "testdata") {
		files, err := os.ReadDir(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			content, err := os.ReadFile(filepath.Join(data, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			w.literals = append(w.literals, f.Name())
			text.Write(content)
		}
	}
	w.text = strings.ToLower(text.String())
	return w
}

func (w words) hasPrefix(prefix string) bool {
	return slices.ContainsFunc(w.literals, func(l string) bool { return strings.HasPrefix(l, prefix) })
}

// hasMention of a field by its name in JSON or in Go.
func (w words) hasMention(name string) bool { return strings.Contains(w.text, strings.ToLower(name)) }

// testFunctions lists all tests as "directory#TestName", with the file that each is in.
func testFunctions(t *testing.T) map[string]source {
	names := map[string]source{}
	for _, s := range loadSources(t) {
		if !s.test {
			continue
		}
		for _, d := range s.syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names[s.dir+"#"+f.Name.Name] = s
			}
		}
	}
	return names
}
