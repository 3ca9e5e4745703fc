package fetch

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/builders"
	"atoll.dev/atoll/internal/sources/render"
	"atoll.dev/atoll/internal/sources/renderchild"
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == ChildCommand:
		buildTime = time.Hour
		err = ServeChild(context.Background(), os.Stdin, os.Stdout)
	case len(os.Args) > 1 && os.Args[1] == renderchild.ChildCommand:
		err = builders.ServeChild(os.Stdin, os.Stdout)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

var loopback = []string{"127.0.0.0/8", "::1/128"}

// gitWork is a git repository with a work tree.
type gitWork struct {
	root, work string
}

func newRepository(t *testing.T) *gitWork {
	t.Helper()
	dir := t.TempDir()
	r := &gitWork{root: filepath.Join(dir, "root"), work: filepath.Join(dir, "work")}
	r.runGit(t, dir, "init", "--quiet", "--bare", "--initial-branch=main", filepath.Join(r.root, "a.git"))
	r.runGit(t, dir, "clone", "--quiet", filepath.Join(r.root, "a.git"), r.work)
	return r
}

func (r *gitWork) runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Aiko", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=Aiko", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit writes files, pushes the commit, and returns its hash.
func (r *gitWork) commit(t *testing.T, files map[string]string) string {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(r.work, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if target, isLink := strings.CutPrefix(text, "-> "); isLink {
			if err := os.Symlink(target, at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.runGit(t, r.work, "add", "-A")
	r.runGit(t, r.work, "commit", "--quiet", "--allow-empty", "-m", "change\n\nmore text")
	r.runGit(t, r.work, "push", "--quiet", "--force", "origin", "HEAD:main")
	return r.runGit(t, r.work, "rev-parse", "HEAD")
}

// handler serves the repository by git's own program.
func (r *gitWork) newHandler(t *testing.T) http.Handler {
	t.Helper()
	return &cgi.Handler{
		Path: filepath.Join(r.runGit(t, r.root, "--exec-path"), "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + r.root, "GIT_HTTP_EXPORT_ALL=1"}, Stderr: io.Discard,
	}
}

func (r *gitWork) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(r.newHandler(t))
	t.Cleanup(server.Close)
	return server.URL + "/a.git"
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

// runFetch runs a child, as the hub does.
func runFetch(t *testing.T, r Request) (*Answer, error) {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := &Fetcher{Executable: []string{own, ChildCommand}, AllowedNetworks: loopback}
	return f.Fetch(t.Context(), r)
}

// wantMain is the want of everything on the branch main.
func wantMain(change ...func(*Want)) []Want {
	w := Want{ID: "s", Ref: "refs/heads/main"}
	for _, fn := range change {
		fn(&w)
	}
	return []Want{w}
}

func mustFetch(t *testing.T, r Request) []Content {
	t.Helper()
	a, err := runFetch(t, r)
	if err != nil {
		t.Fatal(err)
	}
	return a.Contents
}

// describe returns a content as text.
func describe(c Content) string {
	var out []string
	for _, o := range c.Objects {
		out = append(out, fmt.Sprintf("%s:%d", o.File, o.Line))
	}
	for _, p := range c.Problems {
		out = append(out, "problem "+p.File)
	}
	if c.Failure != nil {
		out = append(out, "failure "+string(c.Failure.Reason))
	}
	if c.Unchanged {
		out = append(out, "unchanged")
	}
	return strings.Join(out, ", ")
}

func TestContentsOfACommit(t *testing.T) {
	r := newRepository(t)
	first := r.commit(t, map[string]string{"deploy/a.yaml": configMap, "deploy/sub/b.yml": "# b\n" + configMap, "other/c.json": `{"apiVersion":"v1","kind":"A","metadata":{"name":"c"}}`, "README.md": "x", ".github/w.yaml": "no: object"})
	r.runGit(t, r.work, "tag", "-a", "v1", "-m", "one")
	r.runGit(t, r.work, "push", "--quiet", "origin", "v1")
	second := r.commit(t, map[string]string{"other/c.json": "{}"})
	url := r.serve(t)
	wants := []Want{
		{ID: "all", Ref: "refs/tags/v1"}, {ID: "deploy", Ref: "refs/heads/main", Want: render.Want{Paths: []string{"deploy"}}}, {ID: "file", Ref: "refs/heads/main", Want: render.Want{Paths: []string{"deploy/a.yaml"}}},
		{ID: "without", Ref: "refs/heads/main", Want: render.Want{Paths: []string{"deploy/"}, Exclude: []string{"sub"}}}, {ID: "none", Ref: "refs/heads/main", Want: render.Want{Paths: []string{"absent"}}},
		{ID: "gone", Ref: "refs/heads/gone"}, {ID: "bad", Ref: "refs/heads/main"}, {ID: "commit", Ref: second, Want: render.Want{Paths: []string{"deploy"}}},
	}
	got := mustFetch(t, Request{Type: TypeGit, URL: url, Wants: wants})
	for i, want := range []string{"deploy/a.yaml:1, deploy/sub/b.yml:2, other/c.json:1", "deploy/a.yaml:1, deploy/sub/b.yml:2", "deploy/a.yaml:1", "deploy/a.yaml:1", "", "failure RefMissing", "problem other/c.json", "deploy/a.yaml:1, deploy/sub/b.yml:2"} {
		if describe(got[i]) != want || got[i].ID != wants[i].ID {
			t.Errorf("%s: %s, want %s", wants[i].ID, describe(got[i]), want)
		}
	}
	if c := got[0]; c.Commit != first || c.Message != "change" || c.Author != "Aiko" || c.Digest == "" {
		t.Errorf("%+v", c)
	}
	// The same commit, and another commit with the same files, send nothing.
	seen := []Want{wants[1], wants[1], wants[1]}
	seen[0].SeenCommit = second
	seen[1].SeenDigest = got[1].Digest
	for i, want := range []string{"unchanged", "unchanged", "deploy/a.yaml:1, deploy/sub/b.yml:2"} {
		if c := mustFetch(t, Request{Type: TypeGit, URL: url, Wants: seen[i : i+1]})[0]; describe(c) != want || c.Commit != second {
			t.Errorf("seen %d: %s", i, describe(c))
		}
	}
}

// Numbers come from a child as the file has them.
func TestLargeNumbersStay(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap + "most: 9223372036854775807\nnested: {least: [-9007199254740993, 1.5]}\n"})
	got := mustFetch(t, Request{Type: TypeGit, URL: r.serve(t), Wants: wantMain()})[0].Objects[0].Fields
	if want := map[string]any{"least": []any{int64(-9007199254740993), 1.5}}; got["most"] != int64(9223372036854775807) || !reflect.DeepEqual(got["nested"], want) {
		t.Errorf("%#v", got)
	}
}

func TestDescent(t *testing.T) {
	r := newRepository(t)
	first := r.commit(t, map[string]string{"a.yaml": configMap})
	second := r.commit(t, map[string]string{"b.yaml": configMap})
	third := r.commit(t, map[string]string{"c.yaml": configMap})
	r.runGit(t, r.work, "reset", "--quiet", "--hard", first)
	rewritten := r.commit(t, map[string]string{"d.yaml": configMap})
	url := r.serve(t)
	for _, filter := range []string{"false", "true"} {
		r.runGit(t, filepath.Join(r.root, "a.git"), "config", "uploadpack.allowFilter", filter)
		r.runGit(t, filepath.Join(r.root, "a.git"), "config", "uploadpack.allowAnySHA1InWant", "true")
		for _, c := range []struct {
			old, now string
			want     bool
		}{{first, rewritten, true}, {second, rewritten, false}, {third, rewritten, false}, {first, third, true}, {strings.Repeat("1", 40), rewritten, false}} {
			a, err := runFetch(t, Request{Type: TypeGit, URL: url, Descends: &Descent{Old: c.old, New: c.now}})
			if err != nil || a.Descends != c.want {
				t.Errorf("%s from %s (filter %s): %v, %v, want %v", c.now, c.old, filter, a, err, c.want)
			}
		}
	}
}

// reasonOf returns the reason of a failed fetch.
func reasonOf(t *testing.T, err error) atoll.Reason {
	t.Helper()
	var f *Failure
	if !errors.As(err, &f) {
		t.Fatalf("no failure: %v", err)
	}
	return f.Reason
}

func TestCredentialsOverTLS(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap})
	git := r.newHandler(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if user, password, ok := req.BasicAuth(); !ok || user != "ann" || password != "hush" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "the password is not "+password, http.StatusUnauthorized)
			return
		}
		git.ServeHTTP(w, req)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a client that refuses the certificate
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	right := Request{Type: TypeGit, URL: server.URL + "/a.git", Username: "ann", Password: "hush", CABundle: ca, Wants: wantMain()}
	if got := describe(mustFetch(t, right)[0]); got != "a.yaml:1" {
		t.Error(got)
	}
	for want, change := range map[atoll.Reason]func(*Request){
		atoll.ReasonCredentialsRefused: func(r *Request) { r.Password = "secret-guess" },
		atoll.ReasonServerNotVerified:  func(r *Request) { r.CABundle = "" },
		atoll.ReasonInvalidField:       func(r *Request) { r.CABundle = "none" },
	} {
		request := right
		change(&request)
		_, err := runFetch(t, request)
		if got := reasonOf(t, err); got != want {
			t.Errorf("%s, want %s: %v", got, want, err)
		}
		if strings.Contains(err.Error(), "secret-guess") || strings.Contains(err.Error(), "hush") {
			t.Errorf("a credential is in the error: %v", err)
		}
	}
}

// Another host gets no request, with or without credentials.
func TestRedirectToAnotherHostIsRefused(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, other.URL+req.URL.RequestURI(), http.StatusFound)
	}))
	t.Cleanup(server.Close)
	_, err := runFetch(t, Request{Type: TypeGit, URL: server.URL + "/a.git", Username: "ann", Password: "hush", Wants: wantMain()})
	if got := reasonOf(t, err); got != atoll.ReasonRedirectRefused || asked {
		t.Errorf("%v, asked %v", err, asked)
	}
}

// No failure has what the server wrote into its certificate, or the proxy of the hub's operator.
func TestFailuresHaveNoTextOfOthers(t *testing.T) {
	named := &x509.Certificate{Subject: pkix.Name{CommonName: "hush"}, DNSNames: []string{"hush"}}
	for name, c := range map[string]struct {
		err    error
		want   atoll.Reason
		detail string
	}{
		"an unknown CA":  {&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{Cert: named}}, atoll.ReasonServerNotVerified, "a CA that the hub does not trust"},
		"another host":   {&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: named, Host: "h"}}, atoll.ReasonServerNotVerified, "another host"},
		"it has expired": {&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Cert: named, Reason: x509.Expired, Detail: "hush"}}, atoll.ReasonServerNotVerified, "not valid now"},
		"another fault":  {&tls.CertificateVerificationError{Err: errors.New("hush")}, atoll.ReasonServerNotVerified, "no valid form"},
		"a name":         {&net.OpError{Op: "dial", Err: &net.DNSError{Name: "hush"}}, atoll.ReasonRepositoryUnreachable, "cannot be resolved"},
		"a proxy":        {errors.New("hush"), atoll.ReasonRepositoryUnreachable, "does not answer as a server of such a Repository"},
	} {
		f := failureOf(fmt.Errorf("fetch: %w", c.err))
		if f.Reason != c.want || !strings.Contains(f.Message, c.detail) || strings.Contains(f.Message, "hush") {
			t.Errorf("%s: %s: %s", name, f.Reason, f.Message)
		}
	}
}

func TestServersThatMisbehave(t *testing.T) {
	r := newRepository(t)
	r.commit(t, map[string]string{"a.yaml": configMap})
	git := r.newHandler(t)
	for name, c := range map[string]struct {
		want   atoll.Reason
		handle http.HandlerFunc
	}{
		"no repository": {atoll.ReasonRepositoryMissing, http.NotFound},
		"no git":        {atoll.ReasonRepositoryUnreachable, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hello</html>") }},
		"an error":      {atoll.ReasonRepositoryUnreachable, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusBadGateway) }},
		"half a pack": {atoll.ReasonRepositoryUnreachable, func(w http.ResponseWriter, req *http.Request) {
			answer := httptest.NewRecorder()
			git.ServeHTTP(answer, req)
			body := answer.Body.Bytes()
			if req.Method == http.MethodPost {
				body = body[:len(body)-30]
			}
			for k, v := range answer.Header() {
				w.Header()[k] = v
			}
			w.Header().Del("Content-Length")
			if _, err := w.Write(body); err != nil {
				t.Log(err)
			}
		}},
		"refs without end": {atoll.ReasonRepositoryUnreachable, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "001e# service=git-upload-pack\n0000")
			for i := range 400_000 {
				line := fmt.Sprintf("%040x refs/heads/%06d", i+1, i)
				if i == 0 {
					line += "\x00ofs-delta"
				}
				if _, err := fmt.Fprintf(w, "%04x%s\n", len(line)+5, line); err != nil {
					return
				}
			}
		}},
	} {
		server := httptest.NewServer(c.handle)
		a, err := runFetch(t, Request{Type: TypeGit, URL: server.URL + "/a.git", Wants: wantMain()})
		server.Close()
		if err == nil && len(a.Contents) == 1 && a.Contents[0].Failure != nil {
			err = a.Contents[0].Failure
		}
		if err == nil {
			t.Errorf("%s: no failure: %+v", name, a)
			continue
		}
		if got := reasonOf(t, err); got != c.want {
			t.Errorf("%s: %s, want %s: %v", name, got, c.want, err)
		}
	}
}

// A server that never answers holds a fetch no longer than its context, and the child ends.
func TestSlowServer(t *testing.T) {
	reached := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		close(reached)
		<-req.Context().Done()
	}))
	defer server.Close()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		f := &Fetcher{Executable: []string{own, ChildCommand}, AllowedNetworks: loopback}
		_, err := f.Fetch(ctx, Request{Type: TypeGit, URL: server.URL + "/a.git", Wants: wantMain()})
		done <- err
	}()
	<-reached
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAddressesAreRefused(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"http://127.0.0.1:1/a.git", "http://localhost:1/a.git", "http://169.254.169.254/a.git", "http://[::1]:1/a.git", "http://0.0.0.0:1/a.git"} {
		_, err := (&Fetcher{Executable: []string{own, ChildCommand}}).Fetch(t.Context(), Request{Type: TypeGit, URL: url, Wants: wantMain()})
		if got := reasonOf(t, err); got != atoll.ReasonAddressRefused || !strings.Contains(err.Error(), "--source-allowed-cidrs") {
			t.Errorf("%s: %v", url, err)
		}
	}
	t.Run("behind a proxy", func(t *testing.T) {
		t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
		_, err := (&Fetcher{Executable: []string{own, ChildCommand}}).Fetch(t.Context(), Request{Type: TypeGit, URL: "http://169.254.169.254/a.git", Wants: wantMain()})
		if got := reasonOf(t, err); got != atoll.ReasonAddressRefused {
			t.Error(err)
		}
	})
	for _, url := range []string{"file:///etc", "ext::sh -c true", "ssh://ann:hush@host/a", "https://ann:hush@host/a", "/tmp", "http://[::%2525lo]:1/a.git", "http://[fe80::1%25lo]:1/a.git"} {
		_, err := runFetch(t, Request{Type: TypeGit, URL: url})
		if got := reasonOf(t, err); got != atoll.ReasonInvalidField || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestHostileContents(t *testing.T) {
	r := newRepository(t)
	url := r.serve(t)
	commit := func(files map[string]string) Content {
		t.Helper()
		r.commit(t, files)
		return mustFetch(t, Request{Type: TypeGit, URL: url, Wants: wantMain()})[0]
	}
	if got := describe(commit(map[string]string{"a.yaml": configMap, "link.yaml": "-> /etc/passwd"})); got != "problem link.yaml" {
		t.Errorf("a link to a file: %s", got)
	}
	r.runGit(t, r.work, "rm", "--quiet", "link.yaml")
	if got := describe(commit(map[string]string{"dir": "-> ../../.."})); got != "problem dir" {
		t.Errorf("a link to a directory: %s", got)
	}
	r.runGit(t, r.work, "rm", "--quiet", "dir")
	if got := describe(commit(map[string]string{"huge.yaml": strings.Repeat("# huge\n", 200_000)})); got != "problem huge.yaml" {
		t.Errorf("a huge file: %s", got)
	}
	r.runGit(t, r.work, "rm", "--quiet", "huge.yaml")
	many := map[string]string{}
	for i := range render.MaxFiles + 1 {
		many[fmt.Sprintf("many/%d.yaml", i)] = "# nothing\n"
	}
	if got := describe(commit(many)); got != "failure ContentTooLarge" {
		t.Errorf("many files: %s", got)
	}
	if got := describe(mustFetch(t, Request{Type: TypeGit, URL: url, Wants: wantMain(func(w *Want) { w.Paths = []string{"a.yaml"} })})[0]); got != "a.yaml:1" {
		t.Errorf("a file beside many: %s", got)
	}
}

// Contents that do not fit into one answer are left to the next fetch, and are never lost.
func TestContentsArePostponed(t *testing.T) {
	r := newRepository(t)
	files := map[string]string{}
	for i := range 4 {
		files[fmt.Sprintf("%d.yaml", i)] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '" + strings.Repeat("x", 900_000) + "'}\n"
	}
	r.commit(t, files)
	var wants []Want
	for i := range 5 {
		wants = append(wants, Want{ID: fmt.Sprint(i), Ref: "refs/heads/main"})
	}
	got := mustFetch(t, Request{Type: TypeGit, URL: r.serve(t), Wants: wants})
	for i, c := range got {
		if c.Postponed != (i > 2) || len(c.Objects) != map[bool]int{false: 4, true: 0}[i > 2] {
			t.Errorf("content %d: postponed %v, %d objects", i, c.Postponed, len(c.Objects))
		}
	}
}

// A child that writes without end, or dies, is a failure of its fetch.
func TestChildrenThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		program string
		want    atoll.Reason
	}{
		"it writes without end": {"cat /dev/zero", atoll.ReasonFetchFailed},
		"it dies":               {"kill -9 $$", atoll.ReasonFetchFailed},
		"it says nothing":       {"true", atoll.ReasonFetchFailed},
		"it says other things":  {"echo hello", atoll.ReasonFetchFailed},
	} {
		_, err := (&Fetcher{Executable: []string{"/bin/sh", "-c", c.program}}).Fetch(t.Context(), Request{Type: TypeGit, URL: "https://example.com/a", Password: "hush"})
		if got := reasonOf(t, err); got != c.want || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := (&Fetcher{Executable: []string{"/nonexistent"}}).Fetch(t.Context(), Request{})
	if got := reasonOf(t, err); got != atoll.ReasonFetchFailed {
		t.Error(err)
	}
}

// Credentials come to a child by its standard input alone.
func TestCredentialsAreNotInArgumentsOrEnvironment(t *testing.T) {
	t.Setenv("ATOLL_SOMETHING", "of the hub")
	file := filepath.Join(t.TempDir(), "seen")
	program := "cat /proc/$$/cmdline /proc/$$/environ > " + file + "; cat > " + file + ".in; pwd > " + file + ".dir; echo '{}'"
	if _, err := (&Fetcher{Executable: []string{"/bin/sh", "-c", program}}).Fetch(t.Context(), Request{Type: TypeGit, URL: "https://example.com/a", Username: "ann", Password: "hush"}); err != nil {
		t.Fatal(err)
	}
	seen, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.ReadFile(file + ".in")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.ReadFile(file + ".dir")
	if err != nil {
		t.Fatal(err)
	}
	var r Request
	if err := json.Unmarshal(in, &r); err != nil || r.Password != "hush" {
		t.Errorf("the request is %s", in)
	}
	if bytes.Contains(seen, []byte("hush")) || bytes.Contains(seen, []byte("ATOLL_SOMETHING")) || !bytes.Contains(seen, []byte("GOMEMLIMIT=")) {
		t.Errorf("%q", seen)
	}
	if _, err := os.Stat(strings.TrimSpace(string(dir))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the fetch is left: %v", err)
	}
}
