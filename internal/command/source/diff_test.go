package source

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/plan"
	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/render"
)

var hubKinds = []metav1.APIResourceList{
	{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, {Name: "secrets", Kind: "Secret", Namespaced: true}, {Name: "namespaces", Kind: "Namespace"}}},
	{GroupVersion: "atoll.dev/v1alpha1", APIResources: []metav1.APIResource{{Name: "sources", Kind: "Source", Namespaced: true}, {Name: "repositories", Kind: "Repository", Namespaced: true}}},
}

// appliedSource is a Source that applied objects of other contents.
func appliedSource(t *testing.T, prune v1alpha1.SourcePrune, inventory ...v1alpha1.SourceObject) string {
	t.Helper()
	s := &v1alpha1.Source{}
	s.Name, s.Namespace = "web", "shop"
	s.Spec = v1alpha1.SourceSpec{Repository: "web", Ref: v1alpha1.SourceRef{Branch: "main"}, Paths: []string{"deploy"}, Prune: prune}
	s.Status.Commit, s.Status.Inventory, s.Status.Settings = "c0ffee", inventory, changes.DigestSettings(s, url, render.Result{}, "")
	text, err := yaml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A comparison reads values by the user's rights, and shows none where one may be of a Secret.
func TestDiffHidesValuesOfSecrets(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &v1alpha1.Source{}
	s.Name, s.Namespace = "web", "shop"
	helm := &v1alpha1.HelmBuild{ValuesFrom: []v1alpha1.ValuesReference{{Kind: v1alpha1.ValuesOfConfigMap, Name: "v"}}}
	s.Spec = v1alpha1.SourceSpec{Repository: "web", Ref: v1alpha1.SourceRef{Branch: "main"}, Build: &v1alpha1.SourceBuild{Helm: helm}}
	dir := writeFiles(t, map[string]string{
		"Chart.yaml":       "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {colour: {{ .Values.colour }}, password: {{ .Values.password }}}\n",
	})
	run := func() string {
		text, err := yaml.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		h := clienttest.NewFakeHub(t, map[string]string{
			sourcePath: string(text), repoPath: "{spec: {git: {url: '" + url + "'}}}", configMaps + "a": "{kind: ConfigMap, data: {colour: red, password: hush-before}}",
			configMaps + "v": "{kind: ConfigMap, data: {values.yaml: 'colour: blue'}}", "namespaces/shop/secrets/s": "{kind: Secret, data: {values.yaml: " + base64.StdEncoding.EncodeToString([]byte("password: hush-now")) + "}}",
		})
		out, _, err := runDiff(t, h, "--local", dir, "--hub-program", own)
		if !errors.Is(err, plan.ErrChanges) {
			return "error: " + err.Error()
		}
		return out
	}
	if out := run(); !strings.Contains(out, `/data/colour: "red" -> "blue"`) {
		t.Errorf("values of a ConfigMap: %s", out)
	}
	helm.ValuesFrom = append(helm.ValuesFrom, v1alpha1.ValuesReference{Kind: v1alpha1.ValuesOfSecret, Name: "s"})
	if out := run(); !strings.Contains(out, "/data/colour: (not shown)\n") || !strings.Contains(out, "/data/password: (not shown)\n") || strings.Contains(out, "hush") {
		t.Errorf("values of a Secret: %s", out)
	}
	helm.ValuesFrom[1].Name = "absent"
	if out := run(); !strings.HasPrefix(out, "error: the Secret absent, which valuesFrom names, does not exist in the namespace shop") {
		t.Errorf("a missing Secret: %s", out)
	}
	d := contentDiff{Plan: preview.Plan{Bundles: []preview.BundlePlan{{Rows: []preview.RowGroup{{Items: []preview.ItemChange{{Fields: []preview.FieldChange{{Path: "/a", Before: "hush", After: "hush"}}}}}}}}}}
	d.hideValues()
	if got := d.Plan.Bundles[0].Rows[0].Items[0].Fields[0]; got != (preview.FieldChange{Path: "/a", Hidden: true}) {
		t.Errorf("a field of the plan: %+v", got)
	}
}

// A field that each rendering makes by itself is no change where the hub has it.
func TestDiffKeepsGeneratedFields(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &v1alpha1.Source{}
	s.Name, s.Namespace = "web", "shop"
	s.Spec = v1alpha1.SourceSpec{Repository: "web", Ref: v1alpha1.SourceRef{Branch: "main"}}
	text, err := yaml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	dir := writeFiles(t, map[string]string{
		"Chart.yaml":       "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {colour: blue, id: {{ uuidv4 }}}\n",
	})
	h := clienttest.NewFakeHub(t, map[string]string{
		sourcePath: string(text), repoPath: "{spec: {git: {url: '" + url + "'}}}", configMaps + "a": "{kind: ConfigMap, metadata: {labels: {atoll.dev/source: web}}, data: {colour: red, id: first}}",
	})
	out, _, err := runDiff(t, h, "--local", dir, "--hub-program", own)
	if !errors.Is(err, plan.ErrChanges) || !strings.Contains(out, `/data/colour: "red" -> "blue"`) || strings.Contains(out, "/data/id") {
		t.Errorf("%v\n%s", err, out)
	}
}

// runDiff runs the command over a hub whose plan has no change. It returns the request of the plan.
func runDiff(t *testing.T, h *clienttest.FakeHub, args ...string) (out string, asked plan.Request, err error) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case clienttest.ServeDiscovery(w, r, hubKinds...):
		case r.URL.Path == atoll.PlanPath:
			raw, err := io.ReadAll(r.Body)
			if err == nil {
				err = json.Unmarshal(raw, &asked)
			}
			if err != nil {
				t.Error(err)
			}
			fmt.Fprint(w, "{}")
		default:
			h.ServeHTTP(w, r)
		}
	})
	out, err = clienttest.RunForOutput(t, handler, NewCommand, append([]string{"diff", "web"}, args...)...)
	return out, asked, err
}

const (
	ownedBySource = "{labels: {atoll.dev/source: web}, uid: u-old, managedFields: [{manager: 'atoll-source:shop/web', operation: Apply}]}"
	configMaps    = "namespaces/shop/configmaps/"
)

func newDiffHub(t *testing.T, prune v1alpha1.SourcePrune) *clienttest.FakeHub {
	t.Helper()
	dropped := func(name string) v1alpha1.SourceObject {
		return v1alpha1.SourceObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: name, Hash: "h", UID: "u-old"}
	}
	return clienttest.NewFakeHub(t, map[string]string{
		sourcePath: appliedSource(t, prune,
			v1alpha1.SourceObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a", Hash: "h", UID: "u-a"},
			dropped("old"), dropped("gone"), dropped("taken"),
			v1alpha1.SourceObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "adopted", Hash: "h"}),
		repoPath:                       "{spec: {git: {url: '" + url + "'}}}",
		configMaps + "a":               "{kind: ConfigMap, metadata: {uid: u-a}, data: {colour: red, size: small}}",
		configMaps + "old":             "{kind: ConfigMap, metadata: " + ownedBySource + "}",
		configMaps + "taken":           "{kind: ConfigMap, metadata: {uid: u-other}}",
		configMaps + "adopted":         "{kind: ConfigMap, metadata: {uid: u-x}}",
		"namespaces/shop/secrets/cred": "{kind: Secret, data: {token: b2xk}}",
	})
}

// content is a ConfigMap that changes, one that is new, and a Secret that changes.
var content = map[string]string{
	"deploy/a.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {colour: blue, size: small}\n",
	"deploy/new.yaml": "\n\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: new}\n",
	"deploy/s.yaml":   "apiVersion: v1\nkind: Secret\nmetadata: {name: cred}\ndata: {token: bmV3}\n",
	"other/x.yaml":    "no object",
}

func TestDiffShowsWhatACommitWouldChange(t *testing.T) {
	h := newDiffHub(t, "")
	out, asked, err := runDiff(t, h, "--local", writeFiles(t, content))
	if !errors.Is(err, plan.ErrChanges) {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"compared with commit c0ffee", "~ ConfigMap shop/a (deploy/a.yaml:1)\n    /data/colour: \"red\" -> \"blue\"\n",
		"+ ConfigMap shop/new (deploy/new.yaml:3)\n", "~ Secret shop/cred (deploy/s.yaml:1)\n    /data/token: (not shown)\n",
		"- ConfigMap shop/old\n", "= ConfigMap shop/taken: stays: OwnedElsewhere\n", "= ConfigMap shop/adopted: stays: Adopted\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	for _, hidden := range []string{"bmV3", "b2xk", "shop/gone"} {
		if strings.Contains(out, hidden) {
			t.Errorf("%q is in:\n%s", hidden, out)
		}
	}
	h.ExpectWrites(t)
	if len(asked.Objects) != 3 || len(asked.Deleted) != 1 || asked.Deleted[0].GetName() != "old" {
		t.Errorf("the hub plans over %d objects and the deletion of %v", len(asked.Objects), asked.Deleted)
	}
	for _, o := range asked.Objects {
		if o.GetNamespace() != "shop" || o.GetLabels()[v1alpha1.LabelSource] != "web" {
			t.Errorf("%s has the namespace %q and the labels %v", o.GetName(), o.GetNamespace(), o.GetLabels())
		}
	}
}

// A refused object is part of the answer, and keeps the content from removing anything.
func TestDiffRemovesNothingOfRefusedContent(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a conflict":             {nil, "! ConfigMap shop/a (deploy/a.yaml:1): refused: a person has it\n"},
		"a type":                 {nil, "! Secret shop/cred (deploy/s.yaml:1): refused: failed to create typed patch object: .stringData.pin: expected string (values of the Secret are left out)\n"},
		"a hostile kind":         {map[string]string{"deploy/w.yaml": "apiVersion: example.com/v1\nkind: \"Wid\\egets\"\nmetadata: {name: w}\n"}, "! Wid\\x1bgets w (deploy/w.yaml:1): refused: the hub does not serve this kind"},
		"a kind without its CRD": {map[string]string{"deploy/w.yaml": "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n"}, "! Widget w (deploy/w.yaml:1): refused: the hub does not serve this kind"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newDiffHub(t, "")
			switch name {
			case "a conflict":
				h.Refuse = map[string]metav1.Status{"apply " + configMaps + "a": {Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "a person has it"}}
			case "a type":
				// A number in place of a text is an error without a reason.
				h.Refuse = map[string]metav1.Status{"apply namespaces/shop/secrets/cred": {Code: http.StatusInternalServerError,
					Message: "failed to create typed patch object: .stringData.pin: expected string, got &value.valueUnstructured{Value:4711}"}}
			}
			dir := writeFiles(t, content)
			for file, text := range tc.files {
				writeFile(t, dir, file, text)
			}
			out, asked, err := runDiff(t, h, "--local", dir)
			if !errors.Is(err, plan.ErrChanges) || !strings.Contains(out, tc.want) || !strings.Contains(out, "= ConfigMap shop/old: stays: nothing is removed while an object of the content is refused") {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, r := range asked.Refused {
				if phrase.EscapeLine(r.Object+r.Why) != r.Object+r.Why {
					t.Errorf("the plan has text that is not escaped: %q: %q", r.Object, r.Why)
				}
			}
			if raw, _ := json.Marshal(asked.Refused); strings.Contains(out+string(raw), "4711") {
				t.Errorf("a value of a Secret is shown:\n%s\n%s", out, raw)
			}
			if len(asked.Refused) != 1 || len(asked.Deleted) != 0 {
				t.Errorf("%d refused, %d deleted", len(asked.Refused), len(asked.Deleted))
			}
		})
	}
}

// Without the Repository, it is unknown whether the settings are those of the applied commit.
func TestDiffNeedsTheRepository(t *testing.T) {
	dropped := v1alpha1.SourceObject{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "old", Hash: "h", UID: "u-old"}
	h := clienttest.NewFakeHub(t, map[string]string{sourcePath: appliedSource(t, "", dropped), configMaps + "old": "{kind: ConfigMap, metadata: " + ownedBySource + "}"})
	out, _, err := runDiff(t, h, "--local", writeFiles(t, content))
	if err == nil || errors.Is(err, plan.ErrChanges) || !strings.Contains(err.Error(), "the Repository of the Source") || strings.Contains(out, "stays") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The text reports that the Source is suspended. A pending sync compares every object, because the hub applies every object.
func TestDiffOfASuspendedSourceWithASyncRequest(t *testing.T) {
	s := &v1alpha1.Source{}
	s.Name, s.Namespace = "web", "shop"
	fields := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}
	applied, _ := changes.NewTemplates(s, render.Result{Objects: []render.Object{{Fields: fields}}}, "", func(schema.GroupVersionKind) (changes.ServedKind, bool) {
		return changes.ServedKind{IsNamespaced: true}, true
	})
	text := appliedSource(t, "", applied.Keys...)
	for _, extra := range []string{"", "\n  syncRequest: 2026-01-02T03:04:05Z\n  suspend: true"} {
		h := clienttest.NewFakeHub(t, map[string]string{
			sourcePath: strings.Replace(text, "\nspec:", "\nspec:"+extra, 1), repoPath: "{spec: {git: {url: '" + url + "'}}}",
			configMaps + "a": "{kind: ConfigMap, metadata: {labels: {atoll.dev/source: other}}}",
		})
		out, _, err := runDiff(t, h, "--local", writeFiles(t, map[string]string{"deploy/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"}))
		isChanged := strings.Contains(out, `/metadata/labels/atoll.dev~1source: "other" -> "web"`) && errors.Is(err, plan.ErrChanges)
		if isChanged != (extra != "") || strings.Contains(out, "suspended: the hub takes no commit") != (extra != "") {
			t.Errorf("%q: %v\n%s", extra, err, out)
		}
	}
}

// Objects of kinds and namespaces of the same content are planned without a dry run.
func TestDiffOfNewKindsAndNamespaces(t *testing.T) {
	h := newDiffHub(t, v1alpha1.PruneKeep)
	h.Refuse = map[string]metav1.Status{"apply namespaces/stage/configmaps/b": {Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "no namespace"}}
	out, asked, err := runDiff(t, h, "--local", writeFiles(t, map[string]string{
		"deploy/ns.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: stage}\n",
		"deploy/b.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: stage}\n",
	}))
	if !errors.Is(err, plan.ErrChanges) {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"+ Namespace stage", "? ConfigMap stage/b (deploy/b.yaml:1): not checked: its namespace comes with the same content", "= ConfigMap shop/old: stays: PruneKeeps"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if len(asked.Objects) != 2 || len(asked.Unchecked) != 1 || len(asked.Deleted) != 0 {
		t.Errorf("%d objects, %d unchecked, %d deleted", len(asked.Objects), len(asked.Unchecked), len(asked.Deleted))
	}
}

func TestDiffOfTheAppliedContentIsEmpty(t *testing.T) {
	s := &v1alpha1.Source{}
	s.Name, s.Namespace = "web", "shop"
	fields := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}
	applied, problems := changes.NewTemplates(s, render.Result{Objects: []render.Object{{Fields: fields, File: "deploy/a.yaml", Line: 1}}}, "", func(schema.GroupVersionKind) (changes.ServedKind, bool) {
		return changes.ServedKind{IsNamespaced: true}, true
	})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	h := clienttest.NewFakeHub(t, map[string]string{sourcePath: appliedSource(t, "", applied.Keys...), repoPath: "{spec: {git: {url: '" + url + "'}}}"})
	dir := writeFiles(t, map[string]string{"deploy/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"})
	out, asked, err := runDiff(t, h, "--local", dir)
	if err != nil || !strings.Contains(out, "1 object as the commit applied") || len(asked.Objects) != 0 {
		t.Errorf("%v\n%s", err, out)
	}
	writeFile(t, dir, "deploy/a.yaml", "kind: ConfigMap\n")
	if _, _, err := runDiff(t, h, "--local", dir); err == nil || !strings.Contains(err.Error(), "deploy/a.yaml:1") {
		t.Errorf("invalid content: %v", err)
	}
	if _, _, err := runDiff(t, h, "--local", t.TempDir()); err == nil || !strings.Contains(err.Error(), "no object") {
		t.Errorf("a directory without the paths: %v", err)
	}
}

// Text of a commit cannot leave the fence of a comment.
func TestMarkdownKeepsHostileTextInFences(t *testing.T) {
	d := contentDiff{Namespace: "shop", Source: "web", Objects: []objectChange{{
		Change: changeChanged, Kind: "ConfigMap", Name: "a", File: "x.yaml", Line: 1,
		Fields: []fieldChange{{Path: "/data/a", Before: "```` <script>", After: "a\n```\n# out"}},
	}}}
	text := d.formatMarkdown(false)
	fence := strings.Repeat("`", 5)
	if strings.Count(text, "\n"+fence+"diff\n") != 1 || !strings.Contains(text, "0 created, 1 changed") || strings.Contains(text, "\n# out") {
		t.Errorf("%s", text)
	}
	for _, long := range []string{"x", "`"} {
		d.Objects[0].Fields[0].After = strings.Repeat(long, 1<<20)
		if text := d.formatMarkdown(true); len(text) > 60<<10 || !strings.Contains(text, "cut") {
			t.Errorf("a comment of many %s has %d bytes", long, len(text))
		}
	}
}

// A version of a chart is called one, and not a commit.
func TestDiffNamesTheRevision(t *testing.T) {
	for revision, want := range map[string]string{"c0ffee": "commit c0ffee", "shop:1.2.0@sha256:ab": "version shop:1.2.0@sha256:ab", "": "nothing, because no commit is applied yet"} {
		if got := (&contentDiff{Source: "web", Namespace: "shop", Commit: revision}).formatHeading(); got != "source/web in namespace shop, compared with "+want {
			t.Errorf("%q: %s", revision, got)
		}
	}
}
