package interpret

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fakeLayer of an artifact. size overrides the true size in the manifest.
type fakeLayer struct {
	title string
	text  []byte
	size  int
}

// serveArtifact starts a registry that has one artifact, lib:v1, and returns its host and port.
// With a password, the registry needs it.
func serveArtifact(t *testing.T, password string, layers ...fakeLayer) string {
	t.Helper()
	digest := func(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }
	blobs, list := map[string][]byte{}, []map[string]any{}
	for _, l := range layers {
		size := len(l.text)
		if l.size != 0 {
			size = l.size
		}
		d := map[string]any{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(l.text), "size": size}
		if l.title != "" {
			d["annotations"] = map[string]string{"org.opencontainers.image.title": l.title}
		}
		list, blobs["/v2/lib/blobs/"+digest(l.text)] = append(list, d), l.text
	}
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": list})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_, given, _ := r.BasicAuth()
		switch text, ok := blobs[r.URL.Path]; {
		case password != "" && given != password:
			w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
			w.WriteHeader(http.StatusUnauthorized)
		case ok:
			_, _ = w.Write(text)
		case r.URL.Path == "/v2/lib/manifests/v1", r.URL.Path == "/v2/lib/manifests/"+digest(manifest):
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", digest(manifest))
			w.Header().Set("Content-Length", strconv.Itoa(len(manifest)))
			_, _ = w.Write(manifest)
		case r.URL.Path == "/v2/lib/manifests/index":
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			_, _ = w.Write([]byte(`{"schemaVersion": 2, "manifests": [{"digest": "sha256:x", "size": 1}]}`))
		case r.URL.Path == "/v2/lib/manifests/elsewhere":
			http.Redirect(w, r, "http://registry.example/v2/", http.StatusTemporaryRedirect)
		default:
			http.NotFound(w, r)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	return strings.TrimPrefix(server.URL, "http://")
}

// tarOf returns a tar with pairs of names and texts. A text that begins with "->" is a link.
func tarOf(t *testing.T, pairs ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		h := &tar.Header{Name: pairs[i], Mode: 0o600, Size: int64(len(pairs[i+1])), Typeflag: tar.TypeReg}
		text := []byte(pairs[i+1])
		if to, ok := strings.CutPrefix(pairs[i+1], "->"); ok {
			h.Typeflag, h.Linkname, h.Size, text = tar.TypeSymlink, to, 0, nil
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipOf(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestConvertArtifact(t *testing.T) {
	library := tarOf(t, "./g.example/Widget/health.lua", lua, "Pod/health.lua", lua, "g.example/Widget/testdata/a.yaml", "x", "a.yaml", "->/etc/passwd")
	for name, tc := range map[string]struct {
		layers []fakeLayer
		tag    string
		want   string // a prefix; HOST is the registry
	}{
		"as flux pushes":              {[]fakeLayer{{text: gzipOf(t, library)}}, ":v1", "health-pod health-widget.g.example"},
		"a tar alone":                 {[]fakeLayer{{text: library}}, ":v1", "health-pod health-widget.g.example"},
		"a directory as oras pushes":  {[]fakeLayer{{title: "resource_customizations", text: gzipOf(t, tarOf(t, "resource_customizations/g.example/Widget/health.lua", lua))}}, ":v1", "health-widget.g.example"},
		"files as oras pushes":        {[]fakeLayer{{title: "g.example/Widget/health.lua", text: []byte(lua)}, {title: "a.yaml", text: []byte(trainers)}, {text: []byte("other")}}, ":v1", "zebra yak all health-widget.g.example"},
		"the later layer wins":        {[]fakeLayer{{text: tarOf(t, "g.example/A/health.lua", "return {{")}, {text: tarOf(t, "g.example/A/health.lua", lua)}}, ":v1", "health-a.g.example"},
		"errors name the artifact":    {[]fakeLayer{{text: tarOf(t, "g.example/A/health.lua", "return {{")}}, ":v1", "error: 1 interpreter is not valid:\noci://HOST/lib:v1/g.example/A/health.lua, line 1, column 10: "},
		"no interpreter":              {[]fakeLayer{{text: tarOf(t, "a.txt", "x")}}, ":v1", "error: oci://HOST/lib:v1: there are no interpreters"},
		"no layer":                    {nil, ":v1", "error: oci://HOST/lib:v1: it has no layers"},
		"no tag":                      {nil, "", "error: oci://HOST/lib: name a tag or a digest: oci://REGISTRY/REPOSITORY:TAG"},
		"another tag":                 {nil, ":v2", "error: oci://HOST/lib:v2: "},
		"an index":                    {nil, ":index", "error: oci://HOST/lib:index: it is an index of several artifacts: "},
		"a redirect to plain HTTP":    {nil, ":elsewhere", "error: oci://HOST/lib:elsewhere: Get \"http://registry.example/v2/\": the registry redirects to http://registry.example: plain HTTP is for localhost alone"},
		"another digest":              {nil, "@sha256:" + strings.Repeat("0", 64), "error: oci://HOST/lib@sha256:0000"},
		"a path that leads out":       {[]fakeLayer{{text: tarOf(t, "a/../../b.yaml", trainers)}}, ":v1", "error: oci://HOST/lib:v1: layer sha256:DIGEST: the path \"a/../../b.yaml\" leads out of the artifact, or is no path"},
		"an absolute path":            {[]fakeLayer{{text: tarOf(t, "/b.yaml", trainers)}}, ":v1", "error: oci://HOST/lib:v1: layer sha256:DIGEST: the path \"/b.yaml\" leads out"},
		"a title that leads out":      {[]fakeLayer{{title: "../b.yaml", text: []byte(trainers)}}, ":v1", "error: oci://HOST/lib:v1: layer sha256:DIGEST: the path \"../b.yaml\" leads out"},
		"zstd":                        {[]fakeLayer{{text: []byte("\x28\xb5\x2f\xfd" + "x")}}, ":v1", "error: oci://HOST/lib:v1: layer sha256:DIGEST: it is compressed with zstd: push it with gzip"},
		"a cut archive":               {[]fakeLayer{{text: gzipOf(t, library)[:40]}}, ":v1", "error: oci://HOST/lib:v1: layer sha256:DIGEST: unexpected EOF"},
		"a layer that is large":       {[]fakeLayer{{text: library, size: maxArtifact + 1}}, ":v1", "error: oci://HOST/lib:v1: its layers have more than 32 MiB"},
		"a layer of a negative size":  {[]fakeLayer{{text: library, size: -1}}, ":v1", "error: oci://HOST/lib:v1: "},
		"layers that are large":       {[]fakeLayer{{text: library, size: maxArtifact}, {text: []byte("x")}}, ":v1", "error: oci://HOST/lib:v1: its layers have more than 32 MiB"},
		"a layer of another size":     {[]fakeLayer{{text: library, size: 5}}, ":v1", "error: oci://HOST/lib:v1: layer sha256:DIGEST: "},
		"many layers":                 {make([]fakeLayer, maxLayers+1), ":v1", "error: oci://HOST/lib:v1: it has more than 64 layers"},
		"a large file":                {[]fakeLayer{{text: gzipOf(t, tarOf(t, "a.yaml", strings.Repeat(" ", maxSourceFile+1)))}}, ":v1", "error: oci://HOST/lib:v1: layer sha256:DIGEST: a.yaml has more than 4 MiB: "},
		"an archive that unpacks big": {[]fakeLayer{{text: gzipOf(t, tarOf(t, "a.bin", strings.Repeat(" ", maxUnpacked)))}}, ":v1", "error: oci://HOST/lib:v1: layer sha256:DIGEST: read the tar: the layers of the artifact unpack to more than 128 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			host := serveArtifact(t, "", tc.layers...)
			got := strings.ReplaceAll(runCommand(t, "DIR", "convert", "-f", "oci://"+host+"/lib"+tc.tag), host, "HOST")
			for _, l := range tc.layers {
				got = strings.ReplaceAll(got, fmt.Sprintf("%x", sha256.Sum256(l.text)), "DIGEST")
			}
			if !strings.HasPrefix(got, tc.want) {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

// The credentials are those of docker login. The artifact serves --with, too.
func TestCredentialsOfAnArtifact(t *testing.T) {
	host := serveArtifact(t, "secret", fakeLayer{text: tarOf(t, "g.example/Widget/health.lua", lua)})
	address, dir := "oci://"+host+"/lib:v1", writeTree(t, map[string]string{"w.yaml": widget})
	want := "; log in with docker login " + host
	if got := runCommand(t, dir, "-f", "DIR/w.yaml", "--with", address); !strings.HasPrefix(got, "error: --with "+address) || !strings.HasSuffix(got, want) {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	config := `{"auths": {"` + host + `": {"auth": "dTpzZWNyZXQ="}}}` // u:secret
	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	want = "Widget in shop\n  health        Progressing, Missing"
	if got := runCommand(t, dir, "-f", "DIR/w.yaml", "--with", address); !strings.HasPrefix(got, want) {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:5000": true, "127.0.0.1:1": true, "[::1]:5": true, "[::1]": true,
		"registry.example": false, "localhost.example:80": false, "10.0.0.1:5000": false, "": false,
	} {
		if isLoopback(host) != want {
			t.Errorf("%s: %v", host, !want)
		}
	}
}
