package source

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/command/clienttest"
)

func TestGeneratePrintsWhatTheHubWouldMake(t *testing.T) {
	set := func(generators, template string) string {
		return "apiVersion: atoll.dev/v1alpha1\nkind: SourceSet\nmetadata: {name: apps}\nspec: {generators: [" + generators + "], template: " + template + "}\n"
	}
	const (
		dirs     = "{directories: {repository: shop, ref: {branch: main}, paths: ['apps/*']}}"
		template = "{metadata: {name: '{{.path.basename}}'}, spec: {repository: shop, ref: {branch: main}, paths: ['{{.path.path}}']}}"
		both     = "{metadata: {name: '{{.path.basename}}-{{.cluster.name}}'}, spec: {repository: shop, ref: {branch: main}}}"
	)
	dir := writeFiles(t, map[string]string{
		"repo/apps/web/a.yaml": "x", "repo/apps/db/a.yaml": "x", "repo/.git/x": "x", "bad/c.yaml": "a: [",
		"apps.yaml": set(dirs, template), "empty.yaml": set(strings.Replace(dirs, "apps/*", "gone/*", 1)+", {list: {elements: [{path: {basename: l, path: l}}]}}", template),
		"matrix.yaml": set("{matrix: {generators: ["+dirs+", {clusters: {labelSelector: {matchLabels: {env: prod}}}}]}}", both),
		"files.yaml":  set("{files: {repository: shop, ref: {branch: main}, paths: ['*.yaml']}}", template),
		"typo.yaml":   set("{dirs: {}}", template), "loop.yaml": set(dirs, strings.Replace(template, "{{.path.basename}}", "{{range .x}}{{end}}", 1)),
		"missing.yaml": set(dirs, strings.Replace(template, "{{.path.basename}}", "{{.name}}", 1)),
	})
	for name, c := range map[string]struct {
		args []string
		want []string
		fail string
	}{
		"directories":  {[]string{"-f", dir + "/apps.yaml", "--local", dir + "/repo", "-n", "shop"}, []string{"# spec.generators[0].directories apps/db\n", "atoll.dev/source-set: apps", "name: db\n  namespace: shop", "paths:\n  - apps/web"}, ""},
		"names":        {[]string{"-f", dir + "/apps.yaml", "--local", "shop=" + dir + "/repo", "--names"}, []string{"db\tspec.generators[0].directories apps/db\nweb\tspec.generators[0].directories apps/web\n"}, ""},
		"a matrix":     {[]string{"-f", dir + "/matrix.yaml", "--local", dir + "/repo", "--cluster", "oslo:env=prod,a=b", "--cluster", "test", "--names"}, []string{"db-oslo\tspec.generators[0].matrix apps/db oslo\nweb-oslo\t"}, ""},
		"an empty one": {[]string{"-f", dir + "/empty.yaml", "--local", dir + "/repo", "--names"}, []string{"l\tspec.generators[1].list\n", "# spec.generators[0] finds no entry"}, ""},
		"no directory": {[]string{"-f", dir + "/apps.yaml"}, nil, "spec.generators[0].directories reads the Repository shop: give its files by --local shop=DIR"},
		"another one":  {[]string{"-f", dir + "/apps.yaml", "--local", "other=" + dir}, nil, "--local shop=DIR"},
		"two for one":  {[]string{"-f", dir + "/apps.yaml", "--local", dir, "--local", dir}, nil, "--local: "},
		"a bad file":   {[]string{"-f", dir + "/files.yaml", "--local", dir + "/bad"}, nil, "spec.generators[0].files: c.yaml:"},
		"a typo":       {[]string{"-f", dir + "/typo.yaml"}, nil, `unknown field "dirs"`},
		"a loop":       {[]string{"-f", dir + "/loop.yaml"}, nil, "spec.template.metadata.name: Invalid value"},
		"no key":       {[]string{"-f", dir + "/missing.yaml", "--local", dir + "/repo"}, nil, `spec.generators[0].directories: apps/db: spec.template.metadata.name: text:1:2: executing "text" at <.name>: map has no entry for key "name"`},
		"a cluster":    {[]string{"-f", dir + "/matrix.yaml", "--local", dir + "/repo", "--cluster", ":a"}, nil, "--cluster: "},
		"no file":      {[]string{"-f", dir + "/gone.yaml"}, nil, "--filename: "},
	} {
		out, err := clienttest.RunForOutput(t, clienttest.NewFakeHub(t, nil), NewCommand, append([]string{"generate"}, c.args...)...)
		if c.fail == "" && err != nil || c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)) {
			t.Errorf("%s: %v, want %q", name, err, c.fail)
		}
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: no %q in:\n%s", name, w, out)
			}
		}
	}
}
