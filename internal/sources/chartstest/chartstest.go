// Package chartstest has charts and registries for tests.
//
// Contract: a registry is that of the distribution project, with its content in memory, and ends with its test. Charts are
// pushed by Helm's own client. Functions fail the test that calls them, and are called by its goroutine.
package chartstest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd" // what the configuration names
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory" // what the configuration names
	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"
	"helm.sh/helm/v4/pkg/registry"
)

// NewArchive returns a compressed tar with pairs of names and texts. A text that begins with "->" is a link.
func NewArchive(t testing.TB, pairs ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for i := 0; i < len(pairs); i += 2 {
		h := &tar.Header{Name: pairs[i], Mode: 0o600, Size: int64(len(pairs[i+1])), Typeflag: tar.TypeReg}
		text := pairs[i+1]
		if to, ok := strings.CutPrefix(text, "->"); ok {
			h.Typeflag, h.Linkname, h.Size, text = tar.TypeSymlink, to, 0, ""
		}
		if text == "device" {
			h.Typeflag, h.Size, text = tar.TypeChar, 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// NewChart returns the archive of a chart with one ConfigMap, which has the version.
func NewChart(t testing.TB, name, version string, more ...string) []byte {
	t.Helper()
	return NewArchive(t, append([]string{
		name + "/Chart.yaml", "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n",
		name + "/templates/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {version: '{{ .Chart.Version }}', greeting: '{{ .Values.greeting }}'}\n",
		name + "/values.yaml", "greeting: hello\n",
	}, more...)...)
}

// The credentials of a registry.
const (
	Username = "ann"
	Password = "hush"
)

// NewRegistry starts a registry of the distribution project, with a password and TLS. wrap may be nil.
func NewRegistry(t testing.TB, wrap func(http.Handler) http.Handler) (server *httptest.Server, ca string) {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(Password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(file, append([]byte(Username+":"), hash...), 0o600); err != nil {
		t.Fatal(err)
	}
	return startRegistry(t, configuration.Auth{"htpasswd": configuration.Parameters{"realm": "lab", "path": file}}, wrap)
}

// startRegistry starts a registry with a kind of authentication.
func startRegistry(t testing.TB, auth configuration.Auth, wrap func(http.Handler) http.Handler) (server *httptest.Server, ca string) {
	t.Helper()
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{
		Storage: configuration.Storage{"inmemory": configuration.Parameters{}, "maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}}},
		Auth:    auth,
	}
	var handler http.Handler = handlers.NewApp(context.Background(), config)
	if wrap != nil {
		handler = wrap(handler)
	}
	server = httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// PushChart pushes a chart by Helm's own client.
func PushChart(t testing.TB, server *httptest.Server, archive []byte, name, version string, options ...registry.PushOption) {
	t.Helper()
	host := strings.TrimPrefix(server.URL, "https://")
	client, err := registry.NewClient(registry.ClientOptHTTPClient(server.Client()), registry.ClientOptBasicAuth(Username, Password), registry.ClientOptWriter(io.Discard), registry.ClientOptCredentialsFile(filepath.Join(t.TempDir(), "config.json")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Push(archive, host+"/charts/"+name+":"+version, options...); err != nil {
		t.Fatal(err)
	}
}
