package memberproxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
)

// auditedContext returns a context whose request the hub's audit log knows by that ID.
func auditedContext(t *testing.T) context.Context {
	t.Helper()
	ctx := audit.WithAuditContext(t.Context())
	audit.WithAuditID(ctx, "id-1")
	return ctx
}

// TestWhatOthersLeadToMembersIsAskedAsAPerson: only the user's name goes along, whatever the
// request had in it, and the ID by which both audit logs know it.
func TestWhatOthersLeadToMembersIsAskedAsAPerson(t *testing.T) {
	var got *http.Request
	h := newHandler(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }), func(string) error { return nil }, true)
	dressed := func(r *http.Request) *http.Request {
		r.Host = "live.atoll"
		for _, field := range []string{"Authorization", "Cookie", "Impersonate-User", "Impersonate-Uid", "X-Remote-User"} {
			r.Header.Set(field, "system:admin")
		}
		return r
	}
	for what, do := range map[string]func(){
		"served": func() {
			r := dressed(httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/shop/pods/web.tokyo/log?follow=true", nil))
			h.ServeAs(httptest.NewRecorder(), r.WithContext(auditedContext(t)), &user.DefaultInfo{Name: "jane", Groups: []string{"dev", "system:masters-not"}}, newCluster("tokyo"), "/api/v1/namespaces/shop/pods/web", "/log")
		},
		"done": func() {
			r := dressed(httptest.NewRequest(http.MethodDelete, "/api/v1/namespaces/shop/pods/web/log?follow=true", nil))
			r.RequestURI = ""
			answer, err := h.DoAs(auditedContext(t), &user.DefaultInfo{Name: "jane", Groups: []string{"dev", "system:masters-not"}}, newCluster("tokyo"), r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
		},
	} {
		got = nil
		if do(); got == nil {
			t.Fatalf("%s: the agent was not asked", what)
		}
		if got.RequestURI != "/api/v1/namespaces/shop/pods/web/log?follow=true" || got.Host != "uid-tokyo" || got.Header.Get("Audit-Id") != "id-1" {
			t.Errorf("%s: the agent is asked for %s of %s, by the ID %q", what, got.RequestURI, got.Host, got.Header.Get("Audit-Id"))
		}
		for field, want := range map[string]string{"Impersonate-User": "jane", "Impersonate-Group": "dev", "Impersonate-Uid": "", "Authorization": "", "Cookie": "", "X-Remote-User": "", "Accept-Encoding": ""} {
			if is := strings.Join(got.Header.Values(field), ","); is != want {
				t.Errorf("%s: %s is %q, want %q", what, field, is, want)
			}
		}
	}
}

// TestWhatOthersLeadToMembersIsRefusedAlike: a user that may not be carried over, a cluster that
// cannot be asked, an upgrade to anything, and more than the limit; and no place is kept.
func TestWhatOthersLeadToMembersIsRefusedAlike(t *testing.T) {
	var fails error
	reached := 0
	h := newHandler(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }), func(string) error { return fails }, true)
	h.places.limits = RequestLimits{PerUser: 1, PerUserAll: 1, All: 1}
	jane := &user.DefaultInfo{Name: "jane"}
	for _, c := range []struct {
		what, cluster string
		who           user.Info
		upgrade       string
		dial          error
		full          bool
		code          int
	}{
		{what: "one that is away", cluster: "tokyo", who: jane, dial: status.Error(codes.NotFound, ""), code: 503},
		{what: "another user", cluster: "tokyo", who: jane, code: 200},
		{what: "another user again", cluster: "tokyo", who: jane, code: 200},
		{what: "a component of the hub", cluster: "tokyo", who: &user.DefaultInfo{Name: "system:kube-scheduler"}, code: 403},
		{what: "a cluster that is not accepted", cluster: "denied", who: jane, code: 503},
		{what: "one that checks in", cluster: "edge", who: jane, code: 503},
		{what: "an upgrade to something else", cluster: "tokyo", who: jane, upgrade: "h2c", code: 400},
		{what: "one more than may be", cluster: "tokyo", who: jane, full: true, code: 429},
	} {
		reached, fails = 0, c.dial
		of, _ := h.o.Clusters.Get(c.cluster)
		if c.full {
			h.places.acquireSlot(requestSlot{"jane", "tokyo"})
		}
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods/web/exec", nil)
		if c.upgrade != "" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", c.upgrade)
		}
		w := httptest.NewRecorder()
		h.ServeAs(w, r, c.who, of, "/api/v1/pods/web", "/exec")
		if w.Code != c.code || (reached == 1) != (c.code == 200) {
			t.Errorf("%s: served with %d %s, the agent is asked %d times", c.what, w.Code, w.Body, reached)
		}
		if c.upgrade != "" {
			continue
		}
		r.RequestURI, reached = "", 0
		answer, err := h.DoAs(t.Context(), c.who, of, r)
		if err == nil {
			_ = answer.Body.Close()
		}
		known := apierrors.APIStatus(nil)
		if c.code != 200 && (!errors.As(err, &known) || int(known.Status().Code) != c.code) || c.code == 200 && err != nil || (reached == 1) != (c.code == 200) {
			t.Errorf("%s: done with %v, the agent is asked %d times", c.what, err, reached)
		}
	}
}

// TestARefusalThatIsNoStatusIsToldAsItIs, and how long it is.
func TestARefusalThatIsNoStatusIsToldAsItIs(t *testing.T) {
	for what, said := range map[string]string{
		"words":              "go away",
		"JSON of its own":    `{"message":"User \"jane\" cannot do that"}`,
		"as much as is read": strings.Repeat("x", refusalMost),
	} {
		h := newHandler(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, said)
		}), func(string) error { return nil }, true)
		w := httptest.NewRecorder()
		h.ServeAs(w, httptest.NewRequest(http.MethodGet, "/api/v1/pods/web.tokyo/log", nil), &user.DefaultInfo{Name: "jane"}, newCluster("tokyo"), "/api/v1/pods/web", "/log")
		if w.Code != http.StatusForbidden || w.Body.String() != said || w.Header().Get("Content-Length") != strconv.Itoa(len(said)) {
			t.Errorf("%s: %d, %d bytes, which are said to be %s", what, w.Code, w.Body.Len(), w.Header().Get("Content-Length"))
		}
	}
}

// TestOnlyRedirectionsAreLed: where something was made that is said elsewhere is nothing that a
// client follows; of two places it would follow either.
func TestOnlyRedirectionsAreLed(t *testing.T) {
	for _, c := range []struct {
		code int
		said []string
		want string
		ok   bool
	}{
		{http.StatusCreated, []string{"/elsewhere"}, "/elsewhere", true},
		{http.StatusMultipleChoices, []string{"b"}, "/hub/b", true},
		{http.StatusPermanentRedirect, []string{"/elsewhere"}, "", false},
		{http.StatusFound, []string{"b", "/elsewhere"}, "", false},
		{http.StatusFound, nil, "", true},
		{http.StatusBadRequest, []string{"/elsewhere"}, "/elsewhere", true},
	} {
		r := &http.Response{StatusCode: c.code, Header: http.Header{"Location": c.said}}
		err := proxyRequest{path: "/there/a", base: "/there", at: "/hub"}.rewriteRedirect(r)
		if got := r.Header.Get("Location"); (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("%d with %q: %q, %v", c.code, c.said, got, err)
		}
	}
}
