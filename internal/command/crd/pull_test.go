package crd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/preview"
)

const (
	memberPath = "atoll.dev/clusters/tokyo-1/proxy/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	hubPath    = "apiextensions.k8s.io/customresourcedefinitions/"
)

// fakeFleet is a hub with the member tokyo-1 behind it. It answers plans with its own.
type fakeFleet struct {
	*clienttest.FakeHub
	plan preview.Plan
	// answers replace what is under a path.
	answers map[string]metav1.Status
	planned int
}

func newFleet(t *testing.T, objects map[string]string) *fakeFleet {
	f := &fakeFleet{FakeHub: clienttest.NewFakeHub(t, objects), answers: map[string]metav1.Status{}}
	f.Refuse = map[string]metav1.Status{}
	return f
}

func (f *fakeFleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for path, status := range f.answers {
		if strings.Contains(r.URL.Path, path) {
			status.TypeMeta, status.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
			w.WriteHeader(int(status.Code))
			_ = json.NewEncoder(w).Encode(status) // the client has gone
			return
		}
	}
	if r.URL.Path == atoll.PlanPath {
		f.planned++
		_ = json.NewEncoder(w).Encode(f.plan) // the client has gone
		return
	}
	f.FakeHub.ServeHTTP(w, r)
}

func (f *fakeFleet) run(t *testing.T, args ...string) (out, notes string, err error) {
	t.Helper()
	said := clienttest.Said{Out: clienttest.NewWriteLimitedBuffer(), Notes: clienttest.NewWriteLimitedBuffer()}
	err = clienttest.Run(t.Context(), t, f, NewCommand, said, append([]string{"pull"}, args...)...)
	return said.Out.String(), said.Notes.String(), err
}

// definitionOf is a definition of a member, with the group and the plural of a name.
func definitionOf(name string) string {
	plural, group, _ := strings.Cut(name, ".")
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
spec:
  group: %s
  names: {plural: %s, kind: %s}
  versions: [{name: v1, served: true, storage: true}]
`, group, plural, strings.ToUpper(plural[:1])+strings.TrimSuffix(plural[1:], "s"))
}

func expectError(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("the error is %v, without %q", err, w)
		}
	}
}

func expectText(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

func TestPullWritesATemplate(t *testing.T) {
	f := newFleet(t, map[string]string{memberPath + "widgets.example.com": installed})
	f.plan = preview.Plan{Bundles: []preview.BundlePlan{{Source: "HubSettings hub", Rows: []preview.RowGroup{{Clusters: []string{"lima"}, Change: preview.ChangeAdded}}}}}
	for _, name := range []string{"widgets.example.com", "WIDGETS.example.com", "Widget", "wd"} {
		out, _, err := f.run(t, "tokyo-1", name, "--dry-run")
		if err != nil {
			t.Fatal(err)
		}
		expectText(t, out, "widgets.example.com created: v1 (stored), v1beta1 (dry run)\n  without marks of tools", "service widgets/hook", "It goes at once to lima (HubSettings hub)")
	}
	f.ExpectWrites(t)

	out, _, err := f.run(t, "tokyo-1", "widgets", "widgets.example.com")
	if err != nil || strings.Count(out, "widgets.example.com created") != 1 || strings.Contains(out, "dry run") {
		t.Errorf("%v\n%s", err, out)
	}
	f.ExpectWrites(t, "apply "+hubPath+"widgets.example.com")
	if want, _ := yaml.Marshal(decodeObject(t, template).Object); true {
		if got, _ := yaml.Marshal(f.Object(hubPath + "widgets.example.com")); string(got) != string(want) {
			t.Errorf("stored\n%s\nwant\n%s", got, want)
		}
	}
}

// An unchanged definition is not written again, and the output has no next steps.
func TestPullOfAnUnchangedDefinition(t *testing.T) {
	for name, managers := range map[string]string{
		"the command's": "[{manager: atoll-cli, operation: Apply}]",
		"another's":     "[{manager: kubectl, operation: Apply}]",
	} {
		live := strings.Replace(template, "metadata:\n", "metadata:\n  managedFields: "+managers+"\n", 1)
		if name == "another's" {
			live = strings.Replace(live, "    atoll.dev/conflict-resolution: AdoptIfSame\n", "", 1)
		}
		f := newFleet(t, map[string]string{memberPath + "widgets.example.com": installed, hubPath + "widgets.example.com": live})
		out, _, err := f.run(t, "tokyo-1", "widgets.example.com")
		if err != nil || strings.Contains(out, "Next") || f.planned > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		expectText(t, out, "widgets.example.com unchanged: v1 (stored), v1beta1")
		f.ExpectWrites(t)
	}
}

// A definition that others wrote is taken over by force alone, and then the conversion that the hub
// keeps for members stays.
func TestPullOverADefinitionOfOthers(t *testing.T) {
	const conversion = `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"]}}`
	live := strings.Replace(template, "metadata:\n", `metadata:
  managedFields:
  - {manager: kubectl-create, operation: Update, fieldsV1: {"f:spec": {"f:versions": {}}}}
`, 1)
	live = strings.Replace(live, "atoll.dev/conflict-resolution: AdoptIfSame", "atoll.dev/conversion: '"+conversion+"'", 1)
	f := newFleet(t, map[string]string{memberPath + "widgets.example.com": installed, hubPath + "widgets.example.com": strings.Replace(live, "v1beta1", "v1alpha1", 1)})
	_, _, err := f.run(t, "tokyo-1", "widgets")
	expectError(t, err, "widgets.example.com: the hub has another definition", "did not write", "differs at /spec/versions (kubectl-create); --force")
	if strings.Contains(err.Error(), "conversion") {
		t.Errorf("what the hub keeps for members counts as a difference: %v", err)
	}
	f.ExpectWrites(t)

	out, _, err := f.run(t, "tokyo-1", "widgets", "--force")
	if err != nil {
		t.Fatal(err)
	}
	expectText(t, out, "widgets.example.com changed: v1beta1 added, v1alpha1 removed")
	f.ExpectWrites(t, "apply "+hubPath+"widgets.example.com")
	if kept, _ := json.Marshal(f.Object(hubPath + "widgets.example.com")["spec"].(map[string]any)["conversion"]); string(kept) != conversion {
		t.Errorf("the conversion is %s", kept)
	}
}

// Statements of people on the hub about the command's own template stay.
func TestPullLeavesWhatPeopleStatedOnTheHub(t *testing.T) {
	live := strings.Replace(template, "metadata:\n", "metadata:\n  managedFields: [{manager: atoll-cli, operation: Apply}]\n", 1)
	live = strings.Replace(live, "AdoptIfSame", "Overwrite", 1)
	f := newFleet(t, map[string]string{memberPath + "widgets.example.com": strings.Replace(installed, "team: shop", "team: sales", 1), hubPath + "widgets.example.com": live})
	if _, _, err := f.run(t, "tokyo-1", "widgets"); err != nil {
		t.Fatal(err)
	}
	f.ExpectWrites(t, "apply "+hubPath+"widgets.example.com")
	if a, stated := f.Object(hubPath + "widgets.example.com")["metadata"].(map[string]any)["annotations"].(map[string]any)["atoll.dev/conflict-resolution"]; stated {
		t.Errorf("the resolution of conflicts is applied as %v", a)
	}

	live = strings.Replace(live, "    atoll.dev/conflict", "    atoll.dev/conversion: '{}'\n    atoll.dev/conflict", 1)
	f = newFleet(t, map[string]string{memberPath + "widgets.example.com": installed, hubPath + "widgets.example.com": live})
	_, _, err := f.run(t, "tokyo-1", "widgets")
	expectError(t, err, "the hub keeps a conversion webhook", "--force")
	f.ExpectWrites(t)
}

func TestPullRefusesTheHubsOwn(t *testing.T) {
	f := newFleet(t, map[string]string{
		memberPath + "agentpolicies.agent.atoll.dev": definitionOf("agentpolicies.agent.atoll.dev"),
		memberPath + "newkinds.example.com":          definitionOf("newkinds.example.com"),
		memberPath + "widgets.example.com":           installed,
		hubPath + "newkinds.example.com":             "metadata: {managedFields: [{manager: atoll-hub, operation: Apply}]}",
	})
	for _, name := range []string{"agentpolicies.agent.atoll.dev", "newkinds"} {
		_, _, err := f.run(t, "tokyo-1", name, "--force")
		expectError(t, err, "the hub brings this definition itself")
	}
	_, _, err := f.run(t, "tokyo-1", "agentpolicies.agent.atoll.dev", "-o", "yaml")
	expectError(t, err, "the hub brings this definition itself")
	_, _, err = f.run(t, "tokyo-1", "Bundles.atoll.dev") // the cluster need not have it
	expectError(t, err, "Bundles.atoll.dev: the hub brings this definition itself")
	f.ExpectWrites(t)

	out, notes, err := f.run(t, "tokyo-1", "--all")
	expectError(t, err, "1 definition of 2 not written")
	expectText(t, out, "newkinds.example.com not written: the hub brings", "widgets.example.com created")
	expectText(t, notes, "left out: 1 definition that hub and agents bring themselves")
	f.ExpectWrites(t, "apply "+hubPath+"widgets.example.com")
}

func TestPullAllOfAGroup(t *testing.T) {
	f := newFleet(t, map[string]string{
		memberPath + "gadgets.example.org": definitionOf("gadgets.example.org"),
		memberPath + "gears.example.com":   definitionOf("gears.example.com"),
		memberPath + "widgets.example.com": installed,
	})
	out, _, err := f.run(t, "tokyo-1", "--all", "--group", "example.com")
	if err != nil {
		t.Fatal(err)
	}
	expectText(t, out, "gears.example.com created: v1\n", "widgets.example.com created")
	f.ExpectWrites(t, "apply "+hubPath+"gears.example.com", "apply "+hubPath+"widgets.example.com")
	_, _, err = f.run(t, "tokyo-1", "--all", "--group", "example")
	expectError(t, err, `tokyo-1 has no definition of the group "example"`)
}

func TestPullPrintsManifests(t *testing.T) {
	f := newFleet(t, map[string]string{memberPath + "gears.example.com": definitionOf("gears.example.com"), memberPath + "widgets.example.com": installed})
	out, notes, err := f.run(t, "tokyo-1", "widgets", "gears", "-o", "yaml")
	docs := strings.Split(out, "---\n")
	if err != nil || len(docs) != 2 {
		t.Fatalf("%v\n%s", err, out)
	}
	if want, _ := yaml.Marshal(decodeObject(t, template).Object); docs[0] != string(want) {
		t.Errorf("printed\n%s\nwant\n%s", docs[0], want)
	}
	expectText(t, docs[1], "name: gears.example.com")
	expectText(t, notes, "widgets.example.com: left out: its conversion webhook")
	f.ExpectWrites(t)
}

func TestWhatCannotBePulled(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, message string, d *metav1.StatusDetails) metav1.Status {
		return metav1.Status{Code: code, Reason: reason, Message: message, Details: d}
	}
	conflict := &metav1.StatusDetails{Causes: []metav1.StatusCause{
		{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.versions", Message: `conflict with "kubectl-edit" using apiextensions.k8s.io/v1`},
		{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.scope", Message: `conflict with "helm" using apiextensions.k8s.io/v1`},
	}}
	stored := &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "status.storedVersions[0]", Message: `Invalid value: "v1alpha1": missing from spec.versions`}}}
	const applied = "apply " + hubPath + "widgets.example.com"
	for name, c := range map[string]struct {
		args    []string
		answers map[string]metav1.Status
		refuse  *metav1.Status
		want    []string
	}{
		"no arguments":             {args: nil, want: []string{"name the cluster and the definitions"}},
		"no names":                 {args: []string{"tokyo-1"}, want: []string{"or give --all"}},
		"names and all":            {args: []string{"tokyo-1", "widgets", "--all"}, want: []string{"--all takes no names"}},
		"a group alone":            {args: []string{"tokyo-1", "widgets", "--group", "x"}, want: []string{"give --all, too"}},
		"json":                     {args: []string{"tokyo-1", "widgets", "-o", "json"}, want: []string{"this command supports yaml"}},
		"printed and forced":       {args: []string{"tokyo-1", "widgets", "-o", "yaml", "--force"}, want: []string{"[force output]"}},
		"a path as a cluster":      {args: []string{"../../x", "widgets"}, want: []string{"is no name of a cluster"}},
		"a path as a name":         {args: []string{"tokyo-1", "../x"}, want: []string{"invalid resource name"}},
		"an empty name":            {args: []string{"tokyo-1", ""}, want: []string{`no definition with the resource or kind ""`}},
		"an unknown definition":    {args: []string{"tokyo-1", "gears.example.com"}, want: []string{`tokyo-1 has no definition "gears.example.com"`, "--all --dry-run"}},
		"a begun group":            {args: []string{"tokyo-1", "widgets.example"}, want: []string{`has no definition "widgets.example"`}},
		"an unknown cluster":       {args: []string{"tokyo-1", "widgets.example.com"}, answers: map[string]metav1.Status{"/proxy": status(404, metav1.StatusReasonNotFound, "not found", &metav1.StatusDetails{Group: "atoll.dev", Kind: "clusters", Name: "tokyo-1"})}, want: []string{`the hub has no cluster "tokyo-1"`, "atoll get clusters"}},
		"a disconnected cluster":   {args: []string{"tokyo-1", "widgets"}, answers: map[string]metav1.Status{"/proxy": status(503, metav1.StatusReasonServiceUnavailable, "cluster tokyo-1: its agent is not connected to the hub", nil)}, want: []string{"read the definitions of tokyo-1: cluster tokyo-1: its agent is not connected"}},
		"no right in the cluster":  {args: []string{"tokyo-1", "--all"}, answers: map[string]metav1.Status{"/proxy": status(403, metav1.StatusReasonForbidden, `cluster tokyo-1: User "jane" cannot list`, nil)}, want: []string{"read the definitions of tokyo-1", `User "jane" cannot list`}},
		"no right on the hub":      {args: []string{"tokyo-1", "widgets"}, refuse: &metav1.Status{Code: 403, Reason: metav1.StatusReasonForbidden, Message: "jane cannot patch", Details: &metav1.StatusDetails{}}, want: []string{"administrators of the hub write definitions: jane cannot patch"}},
		"others changed it":        {args: []string{"tokyo-1", "widgets"}, refuse: &metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict, Details: conflict}, want: []string{"others changed it on the hub at .spec.versions (kubectl-edit), .spec.scope (helm); --force"}},
		"objects of a version":     {args: []string{"tokyo-1", "widgets"}, refuse: &metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: "is invalid", Details: stored}, want: []string{"may have stored objects in a version", `"v1alpha1": missing`, `kubectl patch crd widgets.example.com --subresource=status --type=merge -p '{"status":{"storedVersions":["v1"]}}'`}},
		"a definition with a mask": {args: []string{"tokyo-1", "masks.example.com"}, want: []string{"tokyo-1 answered with a definition"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, map[string]string{memberPath + "widgets.example.com": installed})
			if name == "a definition with a mask" {
				f.Put(t, memberPath+"masks.example.com", definitionOf("bundles.atoll.dev"))
			}
			if c.answers != nil {
				f.answers = c.answers
			}
			if c.refuse != nil {
				f.Refuse[applied] = *c.refuse
			}
			_, _, err := f.run(t, c.args...)
			expectError(t, err, c.want...)
			f.ExpectWrites(t)
		})
	}
}

// A plan that the hub does not answer holds up no write.
func TestPullWithoutAPlan(t *testing.T) {
	f := newFleet(t, map[string]string{memberPath + "widgets.example.com": installed})
	f.answers[atoll.PlanPath] = metav1.Status{Code: 413, Reason: metav1.StatusReasonRequestEntityTooLarge, Message: "the plan is too large"}
	out, _, err := f.run(t, "tokyo-1", "widgets")
	if err != nil {
		t.Fatal(err)
	}
	expectText(t, out, "widgets.example.com created", "(the plan is too large): atoll explain crd/widgets.example.com")
	f.ExpectWrites(t, "apply "+hubPath+"widgets.example.com")
}
