package memberproxy

import (
	"net/http"
	"net/http/httptest"
	"testing"

	kubesets "k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestWhatIsAuthorizedIsWhatIsServed: a path is refused by which the API would authorize something
// else than the method at clusters/proxy of that cluster. Such paths are in a namespace, of which
// a tenant may be the administrator, have a verb in the path, or a name in the query.
func TestWhatIsAuthorizedIsWhatIsServed(t *testing.T) {
	reached := ""
	h := newHandler(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached = r.Method + " " + r.RequestURI }),
		func(string) error { return nil }, true)
	const api = "/apis/atoll.dev/v1alpha1"
	for _, c := range []struct{ what, method, path, want string }{
		{"the plain path", "GET", api + "/clusters/tokyo/proxy/api", "GET /api"},
		{"nothing below it", "DELETE", api + "/clusters/tokyo/proxy", "DELETE /"},
		{"the header alone", "HEAD", api + "/clusters/tokyo/proxy/api", "HEAD /api"},
		{"once more below it", "POST", api + "/clusters/tokyo/proxy/x/clusters/tokyo/proxy/api", "POST /x/clusters/tokyo/proxy/api"},
		{"in a namespace", "GET", api + "/namespaces/shop/clusters/tokyo/proxy/api", ""},
		{"in a namespace, a write", "POST", api + "/namespaces/shop/clusters/tokyo/proxy/api", ""},
		{"as a watch", "GET", api + "/watch/clusters/tokyo/proxy/api", ""},
		{"a write that calls itself a watch", "DELETE", api + "/watch/clusters/tokyo/proxy/api", ""},
		{"a watch in a namespace", "POST", api + "/watch/namespaces/shop/clusters/tokyo/proxy/api", ""},
		{"by the old prefix", "GET", api + "/proxy/clusters/tokyo/api", ""},
		{"a name in the query", "GET", api + "/clusters//proxy/api?fieldSelector=metadata.name%3Dtokyo", ""},
		{"another version", "GET", "/apis/atoll.dev/v1/clusters/tokyo/proxy/api", ""},
		{"another group", "GET", "/apis/acme.dev/v1alpha1/clusters/tokyo/proxy/api", ""},
		{"a slash that is encoded", "GET", api + "/clusters/tokyo%2Fproxy/api", ""},
		{"a name that is encoded", "GET", api + "/clusters/toky%6f/proxy/x/clusters/tokyo/proxy/api", ""},
		{"the resource encoded", "GET", api + "/%63lusters/tokyo/proxy/x/clusters/tokyo/proxy/api", ""},
		{"the subresource encoded", "GET", api + "/clusters/tokyo/prox%79/api", ""},
		{"slashes before it", "GET", "/" + api + "/clusters/tokyo/proxy/api", ""},
		{"slashes in it", "GET", api + "//clusters/tokyo/proxy/api", ""},
		{"another cluster by dots", "GET", api + "/clusters/oslo/../tokyo/proxy/api", ""},
		{"a method without a verb", "CONNECT", api + "/clusters/tokyo/proxy/api", ""},
		{"another without", "TRACE", api + "/clusters/tokyo/proxy/api", ""},
		{"an unknown method", "WATCH", api + "/clusters/tokyo/proxy/api", ""},
	} {
		reached = ""
		resolver := &request.RequestInfoFactory{APIPrefixes: kubesets.NewString("api", "apis"), GrouplessAPIPrefixes: kubesets.NewString("api")}
		r := httptest.NewRequest(c.method, "http://hub"+c.path, nil)
		info, err := resolver.NewRequestInfo(r)
		if err != nil || !IsProxyRequest(info) {
			if c.want != "" {
				t.Errorf("%s: not the Handler's: %+v, %v", c.what, info, err)
			}
			continue
		}
		ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), &user.DefaultInfo{Name: "jane"})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(ctx))
		if reached != c.want || (c.want == "") != (w.Code >= 400) {
			t.Errorf("%s: authorized as %q of %q in %q, the agent is asked for %q (wanted %q), and the answer is %d", c.what, info.Verb, info.Name, info.Namespace, reached, c.want, w.Code)
		}
	}
}

// TestNothingButWhatWasAuthorizedIsServed: whatever the API makes of a path, what is served is
// the method that was authorized at clusters/proxy, of that cluster, of no namespace.
func TestNothingButWhatWasAuthorizedIsServed(t *testing.T) {
	const at = "/apis/atoll.dev/v1alpha1/clusters/tokyo/proxy"
	as := func(verb, namespace, name string) *request.RequestInfo {
		return &request.RequestInfo{IsResourceRequest: true, Verb: verb, Namespace: namespace, Name: name}
	}
	for _, c := range []struct {
		method, path string
		authorized   *request.RequestInfo
		want         string // "": nothing is
	}{
		{"GET", at + "/api", as("get", "", "tokyo"), "/api"},
		{"DELETE", at, as("delete", "", "tokyo"), "/"},
		{"DELETE", at + "/api", as("get", "", "tokyo"), ""},
		{"GET", at + "/api", as("watch", "", "tokyo"), ""},
		{"WATCH", at + "/api", as("", "", "tokyo"), ""},
		{"GET", at + "/api", as("get", "shop", "tokyo"), ""},
		{"GET", at + "/api", as("get", "", "oslo"), ""},
		{"GET", "/apis/atoll.dev/v1alpha1/clusters//proxy/api", as("get", "", ""), ""},
		{"GET", at + "fied/api", as("get", "", "tokyo"), ""},
		{"GET", at + "%2Fapi", as("get", "", "tokyo"), ""},
	} {
		got, ok := pathInMember(httptest.NewRequest(c.method, "http://hub"+c.path, nil), c.authorized)
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s %s, authorized as %+v: %q, %t", c.method, c.path, c.authorized, got, ok)
		}
	}
	r := httptest.NewRequest("GET", "http://hub"+at+"/api", nil)
	w := httptest.NewRecorder()
	newHandler(t, http.NotFoundHandler(), func(string) error { t.Error("no request reaches a member"); return nil }, true).
		ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), as("get", "", "tokyo"))))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("of an unknown user: %d", w.Code)
	}
}
