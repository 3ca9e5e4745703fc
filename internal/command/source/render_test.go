package source

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/sources/builders"
	"atoll.dev/atoll/internal/sources/renderchild"
)

// TestMain makes the test binary the hub's program, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == renderchild.ChildCommand {
		if err := builders.ServeChild(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writeFiles writes files into a directory, and returns it.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		writeFile(t, dir, name, text)
	}
	return dir
}

// writeFile writes a file below a directory, and returns its path.
func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	at := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestRenderPrintsWhatTheHubWouldApply(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	dir := writeFiles(t, map[string]string{
		"plain/a.yaml": object, "plain/.hidden.yaml": "x", "bad/a.yaml": "kind: ConfigMap\n", ".git/config": "x",
		"chart/Chart.yaml":         "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/templates/a.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n  namespace: {{ .Release.Namespace }}\ndata: {colour: {{ .Values.colour }}, size: {{ .Values.size | quote }}}\n",
		"chart/templates/job.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata: {name: hook, annotations: {helm.sh/hook: pre-install}}\n",
		"env/prod.yaml":            "size: large\n",
		"source.yaml":              "apiVersion: atoll.dev/v1alpha1\nkind: Source\nmetadata: {name: web, namespace: shop}\nspec:\n  repository: r\n  ref: {branch: main}\n  paths: [chart]\n  build: {helm: {hooks: Omit, values: {colour: red}, valuesFiles: [env/prod.yaml]}}\n",
		"variants.yaml":            "apiVersion: atoll.dev/v1alpha1\nkind: Source\nmetadata: {name: web, namespace: shop}\nspec:\n  repository: r\n  ref: {branch: main}\n  paths: [chart]\n  build: {helm: {hooks: Omit, values: {colour: red, size: small}}}\n  variants:\n  - {name: prod, targetCluster: {clusterSets: [prod]}, helm: {valuesFiles: [env/prod.yaml], values: {colour: blue}}}\n  - {name: none, targetCluster: {clusterSets: [none]}, exclude: true}\n",
		"typo.yaml":                "apiVersion: atoll.dev/v1alpha1\nkind: Source\nmetadata: {name: web}\nspec: {path: chart}\n",
	})
	chart := "---\n# chart/templates/a.yaml:1\napiVersion: v1\ndata:\n  colour: red\n  size: large\nkind: ConfigMap\nmetadata:\n  name: web\n  namespace: shop\n# 1 hook of Helm left out\n"
	values := filepath.Join(writeFiles(t, map[string]string{"v.yaml": "colour: red\n"}), "v.yaml")
	for args, want := range map[string]string{
		"--path plain":                                "---\n# plain/a.yaml:1\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n",
		"-f " + dir + "/source.yaml":                  chart,
		"-f " + dir + "/variants.yaml":                strings.Replace(chart, "large", "small", 1) + "# variant prod: 1 object of its own, 1 left out or other ones; --variant prod prints it\n",
		"-f " + dir + "/variants.yaml --variant prod": strings.Replace(chart, "red", "blue", 1),
		"-f " + dir + "/variants.yaml --variant none": "# 1 hook of Helm left out\n",
		"-f " + dir + "/variants.yaml --variant x":    `error: --variant: the Source has no variant "x"; it has prod, none`,
		"--name web -n shop --path chart --build helm --omit-hooks --values-path env/prod.yaml --values " + values: chart,
		"--path chart --name web -n shop":      "---\n# chart/templates/a.yaml:1\napiVersion: v1\ndata:\n  colour: null\n  size: null\nkind: ConfigMap\nmetadata:\n  name: web\n  namespace: shop\n---\n# chart/templates/job.yaml:1\napiVersion: batch/v1\nkind: Job\nmetadata:\n  annotations:\n    atoll.dev/hook: PreInstall\n    helm.sh/hook: pre-install\n  name: hook\n",
		"--path bad":                           "error: bad/a.yaml:1: it is no Kubernetes object",
		"--path plain --build kustomize":       "error: plain: spec.build.type is Kustomize",
		"--path plain --build jsonnet":         `error: --build: "jsonnet" is not plain, kustomize or helm`,
		"-f " + dir + "/typo.yaml":             `error: --filename: ` + dir + `/typo.yaml: error unmarshaling JSON`,
		"-f " + dir + "/plain/a.yaml":          "error: --filename: " + dir + "/plain/a.yaml has no Source",
		"--path chart -f " + dir + "/a.yaml":   "error: if any flags in the group",
		"--values " + dir + "/absent --path a": "error: --values: open",
	} {
		h := clienttest.NewFakeHub(t, nil)
		out, err := clienttest.RunForOutput(t, h, NewCommand, append([]string{"render", dir, "--hub-program", own}, strings.Fields(args)...)...)
		if err != nil {
			if out = "error: " + err.Error(); strings.HasPrefix(want, "error: ") && strings.HasPrefix(out, want) {
				continue
			}
		}
		if out != want {
			t.Errorf("%s:\n%s\nwant\n%s", args, out, want)
		}
	}
}

func TestCreateStatesTheBuild(t *testing.T) {
	h := clienttest.NewFakeHub(t, map[string]string{"namespaces/shop": "{}"})
	values := filepath.Join(writeFiles(t, map[string]string{"v.yaml": "colour: red\n"}), "v.yaml")
	if _, err := clienttest.RunForOutput(t, h, NewCommand, "create", "git", url, "--name", "web", "--path", "chart", "--values", values,
		"--values-path", "env/prod.yaml", "--release-name", "one", "--kube-version", "1.34", "--api-versions", "a/v1", "--omit-hooks", "--yes"); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(readField(h, sourcePath, "spec", "build"))
	if want := "map[helm:map[apiVersions:[a/v1] hooks:Omit kubeVersion:1.34 releaseName:one values:map[colour:red] valuesFiles:[env/prod.yaml]]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A field that each rendering makes by itself is named.
func TestRenderNamesGeneratedFields(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := writeFiles(t, map[string]string{
		"Chart.yaml":       "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"templates/a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {password: {{ randAlpha 9 }}}\n",
	})
	out, err := clienttest.RunForOutput(t, clienttest.NewFakeHub(t, nil), NewCommand, "render", dir, "--hub-program", own)
	if want := "---\n# templates/a.yaml:1\n# /stringData/password: each rendering makes another value, and the hub keeps the first one\napiVersion: v1\n"; err != nil || !strings.HasPrefix(out, want) {
		t.Errorf("%v\n%s", err, out)
	}
}

// Values of Secrets are masked before a directory is rendered, and a key that is needed must be given.
func TestRenderMasksSecrets(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := writeFiles(t, map[string]string{
		"chart/Chart.yaml":       "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {colour: {{ .Values.colour }}, password: {{ .Values.password }}}\n",
		"source.yaml":            "apiVersion: atoll.dev/v1alpha1\nkind: Source\nmetadata: {name: web, namespace: shop}\nspec:\n  repository: r\n  ref: {branch: main}\n  paths: [chart]\n  build: {helm: {valuesFrom: [{kind: ConfigMap, name: v, key: k}, {kind: Secret, name: s}, {kind: Secret, name: o, optional: true}]}}\n",
	})
	files := writeFiles(t, map[string]string{"v": "colour: red\n", "s": "password: hush\n", "bad": "hush"})
	for args, want := range map[string]string{
		"--input ConfigMap/v/k=" + files + "/v --input Secret/s/values.yaml=" + files + "/s":   "---\n# chart/templates/a.yaml:1\napiVersion: v1\ndata:\n  colour: red\n  password: hidden\nkind: ConfigMap\nmetadata:\n  name: a\n",
		"--input ConfigMap/v/k=" + files + "/v":                                                "error: the Secret s, which valuesFrom names, does not exist",
		"--input ConfigMap/v/k=" + files + "/v --input Secret/s/values.yaml=" + files + "/bad": "error: --input: Secret s, key values.yaml: the text is no YAML map",
		"--input Secret/s=" + files + "/s":                                                     `error: --input: "Secret/s=`,
		"--input Secret/s/k=" + files + "/absent":                                              "error: --input: open ",
	} {
		out, err := clienttest.RunForOutput(t, clienttest.NewFakeHub(t, nil), NewCommand, append([]string{"render", dir, "--hub-program", own, "-f", dir + "/source.yaml"}, strings.Fields(args)...)...)
		if err != nil {
			out = "error: " + err.Error()
		}
		if out != want && (err == nil || !strings.HasPrefix(out, want)) || strings.Contains(out, "hush") {
			t.Errorf("%s:\n%s\nwant\n%s", args, out, want)
		}
	}
}
