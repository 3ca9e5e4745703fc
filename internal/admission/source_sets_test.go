package admission

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/api/v1alpha1"
)

func TestSourceSetsThatAreRefused(t *testing.T) {
	spec := func(more string) string {
		return "{generators: [{list: {elements: [{name: a}]}}], template: {metadata: {name: '{{.name}}'}, spec: {repository: r, ref: {branch: main}}}" + more + "}"
	}
	account := []string{"ann impersonate serviceaccounts shop/atoll-sources"}
	for name, c := range map[string]struct {
		now, before string
		rights      []string
		want        string
	}{
		"a list":                     {spec(""), "", account, ""},
		"without the right":          {spec(""), "", nil, `spec.serviceAccountName: the SourceSet writes Sources by the rights of ServiceAccount "atoll-sources": the verb impersonate on it is needed, which "ann" lacks`},
		"another account":            {spec(", serviceAccountName: admin"), "", account, `ServiceAccount "admin"`},
		"another account's right":    {spec(", serviceAccountName: admin"), "", append(account, "ann impersonate serviceaccounts shop/admin"), ""},
		"the Sources' account":       {strings.Replace(spec(""), "repository: r", "repository: r, serviceAccountName: admin", 1), "", account, `spec.template.spec.serviceAccountName: the Sources write by the rights of ServiceAccount "admin": the verb impersonate on it is needed`},
		"the default of the Sources": {spec(", serviceAccountName: admin"), "", []string{"ann impersonate serviceaccounts shop/admin"}, `ServiceAccount "atoll-sources"`},
		"accounts by parameters":     {strings.Replace(spec(""), "repository: r", "repository: r, serviceAccountName: '{{.name}}'", 1), "", account, "parameters choose the ServiceAccount"},
		"all accounts":               {strings.Replace(spec(""), "repository: r", "repository: r, serviceAccountName: '{{.name}}'", 1), "", append(account, "ann impersonate serviceaccounts shop/"), ""},
		"an edit without the right":  {strings.Replace(spec(""), "main", "next", 1), spec(""), nil, "impersonate"},
		"an element without it":      {strings.Replace(spec(""), "name: a", "name: b", 1), spec(""), nil, "impersonate"},
		"a policy without it":        {spec(", prune: Keep"), spec(""), nil, "impersonate"},
		"a suspension without it":    {spec(", suspend: true"), spec(""), nil, ""},
		"a resumption without it":    {spec(""), spec(", suspend: true"), nil, ""},
		"a text that is no template": {strings.Replace(spec(""), "{{.name}}", "{{.name", 1), "", account, "spec.template.metadata.name: Invalid value"},
		"a loop":                     {strings.Replace(spec(""), "{{.name}}", "{{range .a}}{{end}}", 1), "", account, "is not allowed"},
		"a function of files":        {strings.Replace(spec(""), "{{.name}}", `{{printf "%d" 1}}`, 1), "", account, "the function printf is not one"},
		"a field of no Source":       {strings.Replace(spec(""), "repository: r", "repository: r, path: x", 1), "", account, `unknown field "path"`},
		"no generator":               {strings.Replace(spec(""), "{list: {elements: [{name: a}]}}", "{}", 1), "", account, "spec.generators[0]: Invalid value"},
		"a path out":                 {strings.Replace(spec(""), "{list: {elements: [{name: a}]}}", "{files: {repository: r, ref: {branch: main}, paths: [../a]}}", 1), "", account, "spec.generators[0].files.paths[0]: Invalid value"},
	} {
		err := newGrantingPlugin(Hub{}, c.rights...).validateSourceSet(t.Context(), sourceRequest(t, "SourceSet", "sourcesets", c.now, c.before))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: refused with %v, want %q", name, err, c.want)
		}
	}
}

// fakeSourceSets are SourceSets by namespace.
type fakeSourceSets map[string][]*v1alpha1.SourceSet

func (f fakeSourceSets) InNamespace(namespace string) []*v1alpha1.SourceSet { return f[namespace] }

// The writer of a Repository chooses what a SourceSet makes of it, so the writer needs the right to act as the account that writes the
// Sources.
func TestWritersOfRepositoriesOfSourceSets(t *testing.T) {
	set := &v1alpha1.SourceSet{}
	if err := yaml.UnmarshalStrict([]byte("{spec: {serviceAccountName: makers, generators: [{matrix: {generators: [{directories: {repository: web, ref: {branch: main}, paths: [a]}}, {clusters: {}}]}}], template: {metadata: {name: a}, spec: {}}}}"), set); err != nil {
		t.Fatal(err)
	}
	hub := Hub{Sources: fakeSources{}, SourceSets: fakeSourceSets{"shop": {set}}}
	for rights, want := range map[string]string{
		"": `ServiceAccount "makers"`, "ann impersonate serviceaccounts shop/atoll-sources": `ServiceAccount "makers"`, "ann impersonate serviceaccounts shop/makers": "",
	} {
		err := newGrantingPlugin(hub, rights).validateRepository(t.Context(), sourceRequest(t, "Repository", "repositories", "{git: {url: 'https://h/a.git'}}", ""))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: refused with %v, want %q", rights, err, want)
		}
	}
}
