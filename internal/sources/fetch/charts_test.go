package fetch

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	repo "helm.sh/helm/v4/pkg/repo/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/chartstest"
	"atoll.dev/atoll/internal/sources/render"
)

// chartServer is a Helm repository of files, whose index Helm's own code generates.
type chartServer struct {
	*httptest.Server
	dir string
	mu  sync.Mutex
	// paths are the requests with their credentials.
	paths []string
	wrap  http.Handler
}

func newChartServer(t *testing.T, archives map[string][]byte) *chartServer {
	t.Helper()
	s := &chartServer{dir: t.TempDir()}
	for name, text := range archives {
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := http.FileServer(http.Dir(s.dir))
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		user, _, _ := r.BasicAuth()
		condition := r.Header.Get("If-None-Match")
		if r.Header.Get("If-Modified-Since") != "" {
			condition = "by time"
		}
		s.paths = append(s.paths, strings.Join(strings.Fields(r.URL.Path+" "+user+" "+condition), " "))
		s.mu.Unlock()
		if s.wrap != nil {
			s.wrap.ServeHTTP(w, r)
			return
		}
		files.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	s.writeIndex(t)
	return s
}

// writeIndex generates index.yaml of the archives, and changes it.
func (s *chartServer) writeIndex(t *testing.T, changes ...func(*repo.IndexFile)) {
	t.Helper()
	index, err := repo.IndexDirectory(s.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(index)
	}
	index.SortEntries()
	if err := index.WriteFile(filepath.Join(s.dir, "index.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// takeRequests returns the paths that were requested since the last call.
func (s *chartServer) takeRequests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.paths, ", ")
	s.paths = nil
	return out
}

func (s *chartServer) newRequest(wants ...Want) Request {
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return Request{Type: TypeHelm, URL: s.URL, CABundle: ca, Wants: wants}
}

func wantChart(ref string) Want {
	return Want{ID: "s", Ref: ref, Want: render.Want{Options: render.Options{ReleaseName: "web", Namespace: "shop"}}}
}

// fetchOne returns the only content of a request, or why it failed. It reads as a child does, in this process.
func fetchOne(t *testing.T, r Request) Content {
	t.Helper()
	r.AllowedNetworks = loopback
	a := runRequest(t.Context(), r, t.TempDir())
	if a.Failure != nil {
		return Content{Result: render.Result{Failure: a.Failure}}
	}
	return a.Contents[0]
}

// versionOf returns the version that the ConfigMap of a content has.
func versionOf(c Content) string {
	if len(c.Objects) != 1 {
		return describe(c)
	}
	return c.Objects[0].Fields["data"].(map[string]any)["version"].(string)
}

func TestChartsOfAnIndex(t *testing.T) {
	s := newChartServer(t, map[string][]byte{
		"shop-1.0.0.tgz": chartstest.NewChart(t, "shop", "1.0.0"), "shop-1.2.0.tgz": chartstest.NewChart(t, "shop", "1.2.0"), "shop-1.10.0.tgz": chartstest.NewChart(t, "shop", "1.10.0"),
		"shop-2.0.0-rc.1.tgz": chartstest.NewChart(t, "shop", "2.0.0-rc.1"), "other-0.1.0.tgz": chartstest.NewChart(t, "other", "0.1.0+build.7"),
	})
	for ref, want := range map[string]string{
		"shop@1.2.0": "1.2.0", "shop@1.x": "1.10.0", "shop@>=1.0 <1.10": "1.2.0", "shop@*": "1.10.0", "shop@>=2.0.0-0": "2.0.0-rc.1", "shop@~1.0": "1.0.0", "other@0.1.0+build.7": "0.1.0+build.7",
		"shop@3.x": "failure VersionMissing", "shop@1.2.1": "failure VersionMissing", "absent@*": "failure ChartMissing",
	} {
		if got := versionOf(fetchOne(t, s.newRequest(wantChart(ref)))); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
	// Several Sources of a chart are one archive, and the revision has the version with the digest of the archive.
	s.takeRequests()
	a, err := runFetch(t, s.newRequest(wantChart("shop@1.x"), wantChart("shop@1.10.0"), wantChart("other@*")))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.takeRequests(); got != "/index.yaml, /shop-1.10.0.tgz, /other-0.1.0.tgz" {
		t.Errorf("requested %s", got)
	}
	digest := fmt.Sprintf("shop:1.10.0@sha256:%x", sha256Of(t, filepath.Join(s.dir, "shop-1.10.0.tgz")))
	if a.Contents[0].Commit != digest || a.Contents[1].Commit != digest || a.Contents[0].Builds[0].Chart != "shop-1.10.0" {
		t.Errorf("%+v, want %s", a.Contents[0], digest)
	}
}

// The hub itself finds out that an index did not change: by its ETag, its time or its digest. Another index is read by a child.
func TestSeenIndexesStartNoChild(t *testing.T) {
	s := newChartServer(t, map[string][]byte{"shop-1.0.0.tgz": chartstest.NewChart(t, "shop", "1.0.0")})
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := &Fetcher{Executable: []string{own, ChildCommand}, AllowedNetworks: loopback}
	read := func(seen string, change ...func(*Request)) Content {
		t.Helper()
		w := wantChart("shop@1.x")
		w.SeenCommit, w.SeenDigest = seen, "d"
		r := s.newRequest(w)
		for _, fn := range change {
			fn(&r)
		}
		a, err := f.Fetch(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return a.Contents[0]
	}
	index := filepath.Join(s.dir, "index.yaml")
	setTime := func(at time.Time) {
		t.Helper()
		if err := os.Chtimes(index, at, at); err != nil {
			t.Fatal(err)
		}
	}
	setTime(time.Now().Add(time.Hour)) // so that it does not identify the index
	seen := read("").Commit
	noChild := func(what, want string) {
		t.Helper()
		f.Executable = []string{"/bin/false"}
		defer func() { f.Executable = []string{own, ChildCommand} }()
		s.takeRequests()
		if c := read(seen); !c.Unchanged || c.Commit != seen || c.Digest != "d" {
			t.Errorf("%s: %+v", what, c)
		}
		if got := s.takeRequests(); got != want {
			t.Errorf("%s: requested %s, want %s", what, got, want)
		}
	}
	noChild("the same text", "/index.yaml")
	setTime(time.Now().Add(-time.Hour))
	noChild("the same text of another time", "/index.yaml")
	noChild("an index of the same time", "/index.yaml by time")
	setTime(time.Now().Add(time.Minute))
	noChild("the same index that was written again", "/index.yaml by time")
	files := http.FileServer(http.Dir(s.dir))
	s.wrap = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		files.ServeHTTP(w, r)
	})
	noChild("the first answer with an ETag", "/index.yaml")
	noChild("an ETag", `/index.yaml "one"`)
	s.wrap = nil
	// Other credentials are another view of the server.
	if c := read(seen, func(r *Request) { r.Username, r.Password = "ann", "hush" }); !c.Unchanged || c.Digest != "d" {
		t.Errorf("other credentials: %+v", c)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "shop-1.1.0.tgz"), chartstest.NewChart(t, "shop", "1.1.0"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.writeIndex(t)
	if c := read(seen); versionOf(c) != "1.1.0" {
		t.Errorf("a new version: %+v", c)
	}
}

// Credentials go to the host of the Repository alone, over TLS that its CA proves.
func TestCredentialsOfAnIndex(t *testing.T) {
	other := newChartServer(t, map[string][]byte{"shop-1.0.0.tgz": chartstest.NewChart(t, "shop", "1.0.0")})
	s := newChartServer(t, map[string][]byte{"shop-1.0.0.tgz": chartstest.NewChart(t, "shop", "1.0.0")})
	files := http.FileServer(http.Dir(s.dir))
	s.wrap = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ann" || password != "hush" {
			http.Error(w, "the password is not "+password, http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/moved.tgz" {
			http.Redirect(w, r, other.URL+"/shop-1.0.0.tgz", http.StatusFound)
			return
		}
		files.ServeHTTP(w, r)
	})
	right := s.newRequest(wantChart("shop@*"))
	right.Username, right.Password = "ann", "hush"
	right.CABundle += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw}))
	if c := fetchOne(t, right); versionOf(c) != "1.0.0" {
		t.Fatalf("%+v", c)
	}
	if got := s.takeRequests(); got != "/index.yaml ann, /shop-1.0.0.tgz ann" {
		t.Errorf("requested %s", got)
	}
	for name, at := range map[string]string{"an archive on another host": other.URL + "/shop-1.0.0.tgz", "an archive that is redirected": "moved.tgz"} {
		s.writeIndex(t, func(x *repo.IndexFile) { x.Entries["shop"][0].URLs = []string{at} })
		other.takeRequests()
		if c := fetchOne(t, right); versionOf(c) != "1.0.0" {
			t.Errorf("%s: %+v", name, c)
		}
		if got := other.takeRequests(); got != "/shop-1.0.0.tgz" {
			t.Errorf("%s: requested %q of the other host", name, got)
		}
	}
	s.writeIndex(t)
	for want, change := range map[atoll.Reason]func(*Request){
		atoll.ReasonCredentialsRefused: func(r *Request) { r.Password = "secret-guess" },
		atoll.ReasonServerNotVerified:  func(r *Request) { r.CABundle = "" },
		atoll.ReasonInvalidField:       func(r *Request) { r.CABundle = "none" },
		atoll.ReasonAddressRefused:     func(r *Request) { r.URL = "https://169.254.169.254/charts" },
	} {
		request := right
		change(&request)
		c := fetchOne(t, request)
		if c.Failure == nil || c.Failure.Reason != want {
			t.Errorf("%+v, want %s", c.Failure, want)
			continue
		}
		if strings.Contains(c.Failure.Message, "secret-guess") || strings.Contains(c.Failure.Message, "hush") {
			t.Errorf("a credential is in the error: %s", c.Failure.Message)
		}
	}
	s.wrap = http.RedirectHandler(other.URL+"/index.yaml", http.StatusFound)
	other.takeRequests()
	if c := fetchOne(t, right); c.Failure == nil || c.Failure.Reason != atoll.ReasonRedirectRefused || other.takeRequests() != "" {
		t.Errorf("an index that is redirected: %+v", c.Failure)
	}
}

// Nothing of a hostile repository becomes content, and each problem has its reason.
func TestHostileChartRepositories(t *testing.T) {
	good := chartstest.NewChart(t, "shop", "1.0.0")
	setEntry := func(change func(*repo.ChartVersion)) func(*repo.IndexFile) {
		return func(x *repo.IndexFile) { change(x.Entries["shop"][0]) }
	}
	for name, c := range map[string]struct {
		archive []byte
		index   func(*repo.IndexFile)
		text    string
		want    string
	}{
		"another digest":          {nil, setEntry(func(v *repo.ChartVersion) { v.Digest = strings.Repeat("0", 64) }), "", "failure DigestMismatch"},
		"a digest that is none":   {nil, setEntry(func(v *repo.ChartVersion) { v.Digest = "md5" }), "", "failure DigestMismatch"},
		"no digest":               {nil, setEntry(func(v *repo.ChartVersion) { v.Digest = "" }), "", "templates/a.yaml:1"},
		"no address":              {nil, setEntry(func(v *repo.ChartVersion) { v.URLs = nil }), "", "failure ContentInvalid"},
		"an address of a file":    {nil, setEntry(func(v *repo.ChartVersion) { v.URLs = []string{"file:///etc/passwd"} }), "", "failure ContentInvalid"},
		"an address in the hub":   {nil, setEntry(func(v *repo.ChartVersion) { v.URLs = []string{"https://169.254.169.254/a.tgz"} }), "", "failure AddressRefused"},
		"plain HTTP":              {nil, setEntry(func(v *repo.ChartVersion) { v.URLs = []string{"http://127.0.0.1:1/a.tgz"} }), "", "failure RedirectRefused"},
		"no archive":              {nil, setEntry(func(v *repo.ChartVersion) { v.URLs = []string{"gone.tgz"} }), "", "failure RepositoryMissing"},
		"another chart":           {chartstest.NewChart(t, "other", "1.0.0"), nil, "", "failure ContentInvalid"},
		"another version":         {chartstest.NewChart(t, "shop", "1.0.1"), nil, "", "failure ContentInvalid"},
		"no Chart.yaml":           {chartstest.NewArchive(t, "shop/a.yaml", configMap), nil, "", "failure ContentInvalid"},
		"no archive but a page":   {[]byte("<html>"), nil, "", "failure ContentInvalid"},
		"a cut archive":           {good[:len(good)/2], nil, "", "failure ContentInvalid"},
		"a path that leads out":   {chartstest.NewChart(t, "shop", "1.0.0", "shop/../../b.yaml", configMap), nil, "", "failure ContentInvalid"},
		"an absolute path":        {chartstest.NewChart(t, "shop", "1.0.0", "/etc/b.yaml", configMap), nil, "", "failure ContentInvalid"},
		"a second directory":      {chartstest.NewChart(t, "shop", "1.0.0", "other/b.yaml", configMap), nil, "", "failure ContentInvalid"},
		"a file above":            {chartstest.NewChart(t, "shop", "1.0.0", "b.yaml", configMap), nil, "", "failure ContentInvalid"},
		"a path twice":            {chartstest.NewChart(t, "shop", "1.0.0", "shop/values.yaml", "a: b"), nil, "", "failure ContentInvalid"},
		"a file as a directory":   {chartstest.NewChart(t, "shop", "1.0.0", "shop/values.yaml/b.yaml", "a: b"), nil, "", "failure ContentInvalid"},
		"a link":                  {chartstest.NewChart(t, "shop", "1.0.0", "shop/templates/b.yaml", "->/etc/passwd"), nil, "", "problem templates/b.yaml"},
		"a device":                {chartstest.NewChart(t, "shop", "1.0.0", "shop/templates/b.yaml", "device"), nil, "", "failure ContentInvalid"},
		"an archive that grows":   {chartstest.NewChart(t, "shop", "1.0.0", "shop/files/a.bin", strings.Repeat(" ", maxUnpackedChart)), nil, "", "failure ContentTooLarge"},
		"a large archive":         {bytes.Repeat([]byte("x"), maxChartBytes+1), nil, "", "failure ContentTooLarge"},
		"no index but a page":     {nil, nil, "<html>", "failure RepositoryUnreachable"},
		"an index without a form": {nil, nil, "apiVersion: v1\nentries: [a]\n", "failure RepositoryUnreachable"},
		"a large index":           {nil, nil, strings.Repeat("# comment\n", maxIndexBytes/10+1), "failure RepositoryUnreachable"},
		"an empty index":          {nil, nil, "apiVersion: v1\nentries: {}\n", "failure ChartMissing"},
		"a version that is none":  {nil, setEntry(func(v *repo.ChartVersion) { v.Version = "latest" }), "", "failure VersionMissing"},
		"a missing dependency": {chartstest.NewArchive(t, "shop/Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies: [{name: sub, version: 1.x, repository: 'https://h'}]\n",
			"shop/templates/a.yaml", configMap), nil, "", "problem Chart.yaml"},
		"no object": {chartstest.NewArchive(t, "shop/Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\n"), nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newChartServer(t, map[string][]byte{"shop-1.0.0.tgz": good})
			digestOf := func(*repo.IndexFile) {}
			if c.archive != nil {
				if err := os.WriteFile(filepath.Join(s.dir, "replaced.tgz.bin"), c.archive, 0o600); err != nil {
					t.Fatal(err)
				}
				digestOf = setEntry(func(v *repo.ChartVersion) {
					v.URLs, v.Digest = []string{"replaced.tgz.bin"}, fmt.Sprintf("%x", sha256Of(t, filepath.Join(s.dir, "replaced.tgz.bin")))
				})
			}
			if c.index != nil {
				digestOf = c.index
			}
			s.writeIndex(t, digestOf)
			if c.text != "" {
				if err := os.WriteFile(filepath.Join(s.dir, "index.yaml"), []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := describe(fetchOne(t, s.newRequest(wantChart("shop@*")))); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestChartsOfARegistry(t *testing.T) {
	server, ca := chartstest.NewRegistry(t, nil)
	for _, version := range []string{"1.0.0", "1.2.0", "1.10.0", "2.0.0-rc.1", "0.1.0+build.7"} {
		chartstest.PushChart(t, server, chartstest.NewChart(t, "shop", version), "shop", version)
	}
	right := Request{Type: TypeHelm, URL: strings.Replace(server.URL, "https://", "oci://", 1) + "/charts", Username: "ann", Password: "hush", CABundle: ca}
	with := func(wants ...Want) Request {
		r := right
		r.Wants = wants
		return r
	}
	for ref, want := range map[string]string{
		"shop@1.2.0": "1.2.0", "shop@1.x": "1.10.0", "shop@*": "1.10.0", "shop@0.1.0+build.7": "0.1.0+build.7", "shop@>=2.0.0-0": "2.0.0-rc.1",
		"shop@3.x": "failure VersionMissing", "shop@9.9.9": "failure VersionMissing", "absent@*": "failure ChartMissing", "Shop@*": "failure InvalidField",
	} {
		if got := versionOf(fetchOne(t, with(wantChart(ref)))); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
	// A revision that was seen needs no child.
	w := wantChart("shop@1.x")
	w.SeenCommit, w.SeenDigest = fetchOne(t, with(w)).Commit, "d"
	f := &Fetcher{Executable: []string{"/bin/false"}, AllowedNetworks: loopback}
	a, err := f.Fetch(t.Context(), with(w))
	if err != nil || !a.Contents[0].Unchanged || a.Contents[0].Digest != "d" || !strings.HasPrefix(w.SeenCommit, "shop:1.10.0@sha256:") {
		t.Errorf("%+v, %v", a, err)
	}
	chartstest.PushChart(t, server, chartstest.NewChart(t, "shop", "1.11.0"), "shop", "1.11.0")
	if got := versionOf(fetchOne(t, with(w))); got != "1.11.0" {
		t.Errorf("a new version: %s", got)
	}
	for want, change := range map[atoll.Reason]func(*Request){
		atoll.ReasonCredentialsRefused: func(r *Request) { r.Password = "secret-guess" },
		atoll.ReasonServerNotVerified:  func(r *Request) { r.CABundle = "" },
	} {
		request := with(wantChart("shop@*"))
		change(&request)
		if c := fetchOne(t, request); c.Failure == nil || c.Failure.Reason != want || strings.Contains(c.Failure.Message, "secret-guess") {
			t.Errorf("%+v, want %s", c.Failure, want)
		}
	}
}

// A registry that redirects to the host of its blobs, or names another host for its tokens, gets the credentials to none of them.
func TestCredentialsOfARegistryStay(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	var inside http.Handler
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.Path+r.Header.Get("Authorization"))
		mu.Unlock()
		r.SetBasicAuth("ann", "hush") // the blob itself is behind the registry here
		inside.ServeHTTP(w, r)
	}))
	t.Cleanup(other.Close)
	mode := ""
	server, ca := chartstest.NewRegistry(t, func(next http.Handler) http.Handler {
		inside = next
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case mode == "token":
				w.Header().Set("WWW-Authenticate", `Bearer realm="`+other.URL+`/token",service="lab"`)
				w.WriteHeader(http.StatusUnauthorized)
			case mode == "blobs" && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/"), mode == "manifests" && strings.Contains(r.URL.Path, "/manifests/"):
				http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	chartstest.PushChart(t, server, chartstest.NewChart(t, "shop", "1.0.0"), "shop", "1.0.0")
	ca += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Certificate().Raw}))
	for _, c := range []struct{ mode, want, asked string }{
		{"blobs", "1.0.0", "/blobs/"}, {"manifests", "failure RedirectRefused", ""}, {"token", "failure RedirectRefused", ""},
	} {
		mode, asked = c.mode, nil
		r := Request{Type: TypeHelm, URL: strings.Replace(server.URL, "https://", "oci://", 1) + "/charts", Username: "ann", Password: "hush", CABundle: ca, Wants: []Want{wantChart("shop@1.0.0")}}
		if got := versionOf(fetchOne(t, r)); got != c.want {
			t.Errorf("%s: %s, want %s", c.mode, got, c.want)
		}
		mu.Lock()
		if text := strings.Join(asked, " "); strings.Contains(text, "Basic") || !strings.Contains(text, c.asked) || c.asked == "" && text != "" {
			t.Errorf("%s: the other host is asked %q", c.mode, text)
		}
		mu.Unlock()
	}
}

func TestChooseVersion(t *testing.T) {
	available := []string{"1.0.0", "v1.3.0", "1.10.0", "2.0.0-beta", "not a version", strings.Repeat("1", 200) + ".0.0", "1.10.0+b", "1.10.0+a"}
	for wanted, want := range map[string]string{
		"1.0.0": "1.0.0", "1": "1.10.0+b", "1.10.0": "1.10.0", "^1.0, <1.4": "v1.3.0", "1.3.0": "v1.3.0", "2.0.0-beta": "2.0.0-beta", ">=2.0.0-0": "2.0.0-beta", "*": "1.10.0+b",
		"3": "VersionMissing", "one": "InvalidField", "not a version": "InvalidField",
	} {
		got, err := chooseVersion("the chart shop", wanted, available)
		var failure *Failure
		if errors.As(err, &failure) {
			got = string(failure.Reason)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", wanted, got, want)
		}
	}
}

func TestLaterVersions(t *testing.T) {
	const digest = "@sha256:a"
	for _, c := range []struct {
		old, now string
		want     bool
	}{
		{"shop:1.2.0" + digest, "shop:1.10.0" + digest, true}, {"shop:1.10.0" + digest, "shop:1.2.0" + digest, false}, {"shop:1.2.0@sha256:a", "shop:1.2.0@sha256:b", false},
		{"shop:1.2.0-rc.1" + digest, "shop:1.2.0" + digest, true}, {"shop:1.0.0" + digest, "other:2.0.0" + digest, false}, {"", "shop:1.0.0" + digest, false}, {strings.Repeat("a", 40), "shop:1.0.0" + digest, false},
	} {
		if got := isLaterVersion(Descent{Old: c.old, New: c.now}); got != c.want {
			t.Errorf("%s after %s: %v", c.now, c.old, got)
		}
	}
	a, err := (&Fetcher{Executable: []string{"/bin/false"}}).Fetch(t.Context(), Request{Type: TypeHelm, Descends: &Descent{Old: "shop:1.0.0@a", New: "shop:2.0.0@b"}})
	if err != nil || !a.Descends {
		t.Errorf("%+v, %v", a, err)
	}
}

// FuzzReadChart reads archives. The files have no path that leads out, and are bounded.
func FuzzReadChart(f *testing.F) {
	f.Add(chartstest.NewChart(f, "shop", "1.0.0"))
	f.Add(chartstest.NewArchive(f, "shop/../a", "x"))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		const most = 1 << 20
		tree, size, err := readChart(archive, most)
		if err != nil {
			var failure *Failure
			if !errors.As(err, &failure) {
				t.Fatalf("no failure: %v", err)
			}
			return
		}
		if size > most {
			t.Errorf("%d bytes", size)
		}
		for name := range tree.texts {
			if strings.HasPrefix(name, "/") || name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "/../") {
				t.Errorf("a path leads out: %q", name)
			}
		}
		_, _ = render.Select(tree, render.Want{})
	})
}

func sha256Of(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return hashOf(text)
}

func hashOf(text []byte) []byte {
	sum := sha256.Sum256(text)
	return sum[:]
}
