package builders

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/childprocess"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/renderchild"
)

// probeCommand makes the test binary a child that tries what a confined process cannot do.
const probeCommand = "probe-confinement"

func TestMain(m *testing.M) {
	time.Local = time.UTC // as the environment of a child states
	if len(os.Args) < 2 {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case renderchild.ChildCommand:
		if len(os.Args) > 2 {
			cpuSeconds = 1
		}
		if err := ServeChild(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case probeCommand:
		probeConfinement()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// probeConfinement prints what still works after a process is confined.
func probeConfinement() {
	if err := childprocess.Confine(); err != nil {
		fmt.Println(err)
		return
	}
	works := func(what string, err error) {
		if err == nil {
			fmt.Println(what)
		}
	}
	_, err := os.ReadFile("/etc/passwd")
	works("reading a file", err)
	works("writing a file", os.WriteFile(os.TempDir()+"/atoll-probe", nil, 0o600))
	works("removing a file", os.Remove("/nonexistent"))
	_, err = net.DialTimeout("tcp", "127.0.0.1:1", time.Second)
	if !errors.Is(err, syscall.ENOSYS) {
		fmt.Println("dialling:", err)
	}
	_, err = net.ListenPacket("udp", "127.0.0.1:0")
	works("listening", err)
	works("running a program", exec.Command("/bin/true").Run())
	works("ending another process", syscall.Kill(os.Getppid(), 0))
	done := make(chan bool)
	go func() { done <- true }()
	<-done
	fmt.Println("done")
}

func ownProgram(t *testing.T, command string) []string {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{own, command}
}

// A process that renders has no file, network or program.
func TestConfinement(t *testing.T) {
	out, err := exec.Command(ownProgram(t, probeCommand)[0], probeCommand).CombinedOutput()
	if err != nil || string(out) != "done\n" {
		t.Fatalf("%v: %s", err, out)
	}
}

func chartJob(template string) render.Job {
	return render.Job{
		Builds: []render.Build{{Type: render.Helm, Files: []string{"Chart.yaml", "templates/a.yaml"}}}, Options: render.Options{ReleaseName: "web"},
		Files: map[string][]byte{"Chart.yaml": []byte("apiVersion: v2\nname: shop\nversion: 1.0.0\n"), "templates/a.yaml": []byte(template)},
	}
}

// newArchive returns an archive of a chart with a large file.
func newArchive(t *testing.T, size int) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	files := tar.NewWriter(zip)
	for name, text := range map[string][]byte{"sub/Chart.yaml": []byte("apiVersion: v2\nname: sub\nversion: 1.0.0\n"), "sub/large": make([]byte, size)} {
		if err := files.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(files.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// addFile adds a file to the chart of a job.
func addFile(j render.Job, name string, text []byte) render.Job {
	j.Builds[0].Files = append(j.Builds[0].Files, name)
	j.Files[name] = text
	return j
}

// Each hostile content is an error of its own, in time.
func TestHostileContent(t *testing.T) {
	const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for _, c := range "bcdefghi" {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	kustomization := func(files map[string]string) render.Job {
		j := render.Job{Builds: []render.Build{{Type: render.Kustomize}}, Files: map[string][]byte{}}
		for name, text := range files {
			j.Files[name] = []byte(text)
		}
		return j
	}
	for name, c := range map[string]struct {
		job    render.Job
		reason atoll.Reason
		want   string
	}{
		"memory":           {chartJob(`{{ repeat 2000000000 "x" }}`), atoll.ReasonContentTooLarge, "more memory"},
		"processor":        {chartJob(`{{ range untilStep 0 3000 1 }}{{ $x := genPrivateKey "rsa" }}{{ end }}`), atoll.ReasonContentTooLarge, "seconds of a processor"},
		"recursion":        {chartJob(`{{ define "r" }}{{ include "r" . }}{{ end }}{{ include "r" . }}`), atoll.ReasonContentInvalid, "templates/a.yaml"},
		"many objects":     {chartJob(`{{ range until 3000 }}` + "---\n" + `apiVersion: v1` + "\nkind: ConfigMap\nmetadata: {name: a{{ . }}}\n" + `{{ end }}`), atoll.ReasonContentInvalid, "more than 2000 objects"},
		"a large object":   {chartJob(object + "data:\n  a: {{ repeat 2000000 \"x\" }}\n"), atoll.ReasonContentInvalid, "more than 1048576 bytes"},
		"aliases":          {chartJob(object + bomb), atoll.ReasonContentInvalid, "templates/a.yaml"},
		"environment":      {chartJob(object + `data: {a: {{ env "HOME" }}}`), atoll.ReasonContentInvalid, `function "env" not defined`},
		"names of hosts":   {chartJob(object + `data: {a: "x{{ getHostByName "localhost" }}x"}`), "", "data:map[a:xx]"},
		"aliases of files": {kustomization(map[string]string{"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": object + bomb}), atoll.ReasonContentTooLarge, "more memory"},
		"an archive":       {addFile(chartJob(object), "charts/sub.tgz", newArchive(t, 300<<20)), atoll.ReasonContentInvalid, "Chart.yaml"},
		"a small archive":  {addFile(chartJob(object), "charts/sub.tgz", newArchive(t, 10)), "", "kind:ConfigMap"},
		"no archive":       {addFile(chartJob(object), "charts/sub.tgz", []byte("x")), atoll.ReasonContentInvalid, "Chart.yaml"},
		"a file by schema": {addFile(chartJob(object), "values.schema.json", []byte(`{"$ref": "file:///etc/passwd"}`)), atoll.ReasonContentInvalid, "function not implemented"},
		"a URL by schema":  {addFile(chartJob(object), "values.schema.json", []byte(`{"$ref": "http://127.0.0.1:1/a"}`)), atoll.ReasonContentInvalid, "function not implemented"},
		"a program":        {kustomization(map[string]string{"kustomization.yaml": "generators: [a.yaml]\n", "a.yaml": "apiVersion: v1\nkind: Run\nmetadata:\n  name: a\n  annotations:\n    config.kubernetes.io/function: |\n      exec: {path: /bin/true}\n"}), atoll.ReasonContentInvalid, "kustomization.yaml"},
		"a remote base":    {kustomization(map[string]string{"kustomization.yaml": "resources: ['https://127.0.0.1:1/a.yaml']\n"}), atoll.ReasonContentInvalid, "kustomization.yaml"},
		"a cycle":          {kustomization(map[string]string{"kustomization.yaml": "resources: [./a]\n", "a/kustomization.yaml": "resources: [../]\n"}), atoll.ReasonContentInvalid, "cycle"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := ownProgram(t, renderchild.ChildCommand)
			if name == "processor" {
				program = append(program, "short")
			}
			result, err := renderchild.Runner{Executable: program}.Run(t.Context(), c.job)
			got, reason := describe(result), atoll.Reason("")
			var failure *render.Failure
			switch {
			case errors.As(err, &failure):
				got, reason = failure.Message, failure.Reason
			case result.Failure != nil:
				reason = result.Failure.Reason
			case len(result.Problems) > 0:
				reason = atoll.ReasonContentInvalid
			default:
				got = fmt.Sprint(result.Objects)
			}
			if reason != c.reason || !strings.Contains(got, c.want) {
				t.Errorf("%s %s, want %s %s", reason, got, c.reason, c.want)
			}
		})
	}
}
