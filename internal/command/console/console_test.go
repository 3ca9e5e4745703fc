package console

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/clienttest"
)

const goodCode = "Zmlyc3QtY29kZQ"

// fakeHub answers a request for a code, and records its body.
type fakeHub struct {
	t      *testing.T
	answer func(w http.ResponseWriter)
	body   string
}

func (h *fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/console/codes" || r.TLS != nil && r.Header.Get("Authorization") != "Bearer t" {
		h.t.Errorf("the command sends %s %s with %v", r.Method, r.URL, r.Header)
	}
	body, _ := io.ReadAll(r.Body)
	h.body = string(body)
	h.answer(w)
}

func answerCode(w http.ResponseWriter) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"code":%q,"user":"aiko\u001b[1m","until":"2026-11-30T12:01:00Z"}`, goodCode)
}

func answerStatus(code int, message string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Message: message})
	}
}

// run returns what the command prints.
func run(t *testing.T, h http.Handler, args ...string) (out, notes string, err error) {
	t.Helper()
	said := clienttest.Said{Out: clienttest.NewWriteLimitedBuffer(), Notes: clienttest.NewWriteLimitedBuffer()}
	err = clienttest.Run(t.Context(), t, h, NewCommand, said, args...)
	return said.Out.String(), said.Notes.String(), err
}

func TestTheAddressIsPrinted(t *testing.T) {
	asked := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the command asks for %s", r.URL) })
	out, _, err := run(t, asked, "--address")
	if err != nil || !strings.HasPrefix(out, "http://127.0.0.1:") || !strings.HasSuffix(out, "/console/\n") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestAddresses(t *testing.T) {
	for hub, want := range map[string]string{
		"https://hub.example:6443": "https://hub.example:6443/console/", "https://hub.example": "https://hub.example/console/", "https://hub.example/": "https://hub.example/console/",
		"https://[::1]:6443": "https://[::1]:6443/console/", "": "", "hub": "", "://": "",
	} {
		got, err := consoleAddress(hub)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v", hub, got, err)
		}
	}
}

// The link alone is on the output, so that a script can read it. The notes have no code.
func TestTheLinkIsPrinted(t *testing.T) {
	h := &fakeHub{t: t, answer: answerCode}
	out, notes, err := run(t, h, "--no-browser", "--lifetime", "90s")
	if err != nil || !strings.HasPrefix(out, "http://127.0.0.1:") || !strings.HasSuffix(out, "/console/#code="+goodCode+"\n") || strings.Count(out, "\n") != 1 {
		t.Errorf("%q, %v", out, err)
	}
	if h.body != `{"lifetimeSeconds":90}` {
		t.Errorf("the hub is asked for %s", h.body)
	}
	if !strings.Contains(notes, `as aiko\x1b[1m, once, until 2026-11-30T12:01:00Z`) || strings.Contains(notes, goodCode) || strings.Contains(notes, "\x1b") {
		t.Errorf("the notes are %q", notes)
	}
}

// writeOpener puts a program in the place of xdg-open, and returns the file with its argument.
func writeOpener(t *testing.T, exit int) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s' \"$1\" > %s/link\nexit %d\n", dir, exit)
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":0")
	return filepath.Join(dir, "link")
}

func TestABrowserOpens(t *testing.T) {
	file := writeOpener(t, 0)
	out, notes, err := run(t, &fakeHub{t: t, answer: answerCode})
	if err != nil || out != "" || strings.Contains(notes, goodCode) || !strings.Contains(notes, "Sign in there as aiko") {
		t.Errorf("%q, %q, %v", out, notes, err)
	}
	if link, err := os.ReadFile(file); err != nil || !strings.HasSuffix(string(link), "/console/#code="+goodCode) {
		t.Errorf("the browser opens %q, %v", link, err)
	}
}

func TestABrowserThatDoesNotOpen(t *testing.T) {
	t.Run("it fails", func(t *testing.T) {
		writeOpener(t, 3)
		out, notes, err := run(t, &fakeHub{t: t, answer: answerCode})
		if err != nil || !strings.HasSuffix(out, "#code="+goodCode+"\n") || !strings.Contains(notes, "did not open") {
			t.Errorf("%q, %q, %v", out, notes, err)
		}
	})
	t.Run("there is none", func(t *testing.T) {
		for _, name := range []string{"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} {
			t.Setenv(name, "")
		}
		out, notes, err := run(t, &fakeHub{t: t, answer: answerCode})
		if err != nil || !strings.HasSuffix(out, "#code="+goodCode+"\n") || strings.Contains(notes, "did not open") {
			t.Errorf("%q, %q, %v", out, notes, err)
		}
	})
}

func TestOpeners(t *testing.T) {
	for name, tc := range map[string]struct{ system, set, want string }{
		"macOS": {"darwin", "", "open"}, "Windows": {"windows", "", "rundll32"}, "a server": {"linux", "", ""},
		"X": {"linux", "DISPLAY", "xdg-open"}, "Wayland": {"linux", "WAYLAND_DISPLAY", "xdg-open"}, "a stated browser": {"freebsd", "BROWSER", "xdg-open"},
	} {
		opener := findOpener(tc.system, func(variable string) string {
			if variable == tc.set {
				return "set"
			}
			return ""
		})
		if got := strings.Join(append(opener, "")[:1], ""); got != tc.want {
			t.Errorf("%s: %v", name, opener)
		}
	}
}

func TestRequestsThatGetNoCode(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter)
		want   string
	}{
		"no console":             {answerStatus(404, "the server could not find the requested resource"), "its console is off"},
		"no console, no right":   {answerStatus(403, `User "aiko" cannot post path "/console/codes"`), "its console is off"},
		"a hub of before":        {answerStatus(405, "the console's files are only read"), "older than this command"},
		"impersonation":          {answerStatus(403, "a code is for the person of the credential itself"), "a code is for the person of the credential itself"},
		"unknown credentials":    {answerStatus(401, "the hub accepts no credential"), "does not accept these credentials"},
		"too many":               {answerStatus(429, "you request codes too fast"), "you request codes too fast"},
		"a proxy":                {func(w http.ResponseWriter) { http.Error(w, "<html>", http.StatusBadGateway) }, "Bad Gateway"},
		"no JSON":                {func(w http.ResponseWriter) { w.WriteHeader(201); fmt.Fprint(w, "<html>") }, "answered with no code"},
		"no code":                {func(w http.ResponseWriter) { w.WriteHeader(201); fmt.Fprint(w, `{"user":"aiko"}`) }, "another form"},
		"a code of two lines":    {func(w http.ResponseWriter) { w.WriteHeader(201); fmt.Fprint(w, `{"code":"AAAA\nBBBB"}`) }, "another form"},
		"a code of another form": {func(w http.ResponseWriter) { w.WriteHeader(201); fmt.Fprint(w, `{"code":"a b;c"}`) }, "another form"},
		"a long code": {func(w http.ResponseWriter) {
			w.WriteHeader(201)
			fmt.Fprintf(w, `{"code":%q}`, strings.Repeat("a", 300))
		}, "another form"},
		"another address": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "Temporary Redirect"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := run(t, &fakeHub{t: t, answer: tc.answer}, "--no-browser")
			if err == nil || out != "" || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%q, %v, want %q", out, err, tc.want)
			}
		})
	}
}

func TestFlagsThatAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--lifetime", "11m"}, {"--lifetime", "0s"}, {"--address", "--no-browser"}, {"more"}} {
		if out, _, err := run(t, &fakeHub{t: t, answer: answerCode}, args...); err == nil {
			t.Errorf("%v: %q", args, out)
		}
	}
}

// runWithTLS runs the command against a hub with a certificate of its own authority.
func runWithTLS(t *testing.T, trust func(authority string) string) (notes string, server *httptest.Server) {
	t.Helper()
	server = httptest.NewTLSServer(&fakeHub{t: t, answer: answerCode})
	t.Cleanup(server.Close)
	dir := t.TempDir()
	authority := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kubeconfig")
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: hub\nclusters: [{name: hub, cluster: {server: %q, %s}}]\ncontexts: [{name: hub, context: {cluster: hub, user: u}}]\nusers: [{name: u, user: {token: t}}]\n", server.URL, trust(authority))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	said := clienttest.NewWriteLimitedBuffer()
	cmd := NewCommand(&client.ConnectionFlags{Kubeconfig: file})
	cmd.SetArgs([]string{"--no-browser"})
	cmd.SetOut(io.Discard)
	cmd.SetErr(said)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return said.String(), server
}

// The fingerprint is that of the certificate which the browser shows.
func TestTheCertificateOfAPrivateAuthority(t *testing.T) {
	notes, server := runWithTLS(t, func(authority string) string { return fmt.Sprintf("certificate-authority: %q", authority) })
	if want := formatFingerprint(server.Certificate().Raw); !strings.Contains(notes, want) || len(want) != 32*3-1 || strings.Contains(notes, "nothing proves") {
		t.Errorf("no %s in %q", want, notes)
	}
	if notes, _ = runWithTLS(t, func(string) string { return "insecure-skip-tls-verify: true" }); !strings.Contains(notes, "nothing proves") {
		t.Errorf("the notes are %q", notes)
	}
}

func TestNotesThatCannotBePrinted(t *testing.T) {
	notes := clienttest.NewWriteLimitedBuffer(0)
	err := printLink(io.Discard, notes, "link", oneTimeCode{until: time.Now()})
	if !errors.Is(err, clienttest.ErrFull) {
		t.Errorf("%v", err)
	}
}
