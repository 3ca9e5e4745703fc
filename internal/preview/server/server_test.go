package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/admission"
	"atoll.dev/atoll/internal/atoll"
)

// startingServer has no tables yet.
func startingServer() *Server {
	return &Server{Sources: func() (Sources, bool) { return Sources{}, false }}
}

func TestRequestsThatAreRefused(t *testing.T) {
	s := startingServer()
	alice := &user.DefaultInfo{Name: "alice"}
	crowded := startingServer()
	crowded.ReserveMemory = func(user, what string, n int64) (func(), error) {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%s for %s takes %d bytes", what, user, n), 1)
	}
	for name, tc := range map[string]struct {
		serve       http.HandlerFunc
		method, url string
		body        string
		user        user.Info
		code        int
		message     string
	}{
		"explain by POST":                 {s.ServeExplain, "POST", atoll.ExplainPath, "", alice, http.StatusMethodNotAllowed, "not supported"},
		"explain with another parameter":  {s.ServeExplain, "GET", atoll.ExplainPath + "?fields=x", "", alice, http.StatusBadRequest, `explain has no parameter "fields"; it has group, kind, namespace, name, cluster, output and all`},
		"explain without a user":          {s.ServeExplain, "GET", atoll.ExplainPath, "", nil, http.StatusUnauthorized, "the request has no user"},
		"explain of a hub that starts":    {s.ServeExplain, "GET", atoll.ExplainPath + "?timeout=3s", "", alice, http.StatusServiceUnavailable, "the hub is starting up"},
		"a plan by GET":                   {s.ServePlan, "GET", atoll.PlanPath, "", alice, http.StatusMethodNotAllowed, "not supported"},
		"a plan with another parameter":   {s.ServePlan, "POST", atoll.PlanPath + "?cluster=a", "{}", alice, http.StatusBadRequest, `plan has no parameter "cluster"; it has output and all`},
		"a plan of an unknown field":      {s.ServePlan, "POST", atoll.PlanPath, `{"things":[]}`, alice, http.StatusBadRequest, `unknown field "things"`},
		"a plan without a user":           {s.ServePlan, "POST", atoll.PlanPath, "{}", nil, http.StatusUnauthorized, "the request has no user"},
		"a plan that is too large":        {s.ServePlan, "POST", atoll.PlanPath, `{"things":"` + strings.Repeat("x", maxPlanBytes) + `"}`, alice, http.StatusRequestEntityTooLarge, "at most 4194304 are planned at once"},
		"a plan of too many objects":      {s.ServePlan, "POST", atoll.PlanPath, `{"deleted":[` + strings.Repeat("null,", maxPlannedObjects) + `null]}`, alice, http.StatusRequestEntityTooLarge, "5001 objects"},
		"a plan without memory for it":    {crowded.ServePlan, "POST", atoll.PlanPath, "{}", alice, http.StatusTooManyRequests, "the plan for alice takes 80 bytes"},
		"a plan of a hub that starts":     {s.ServePlan, "POST", atoll.PlanPath, "{}", alice, http.StatusServiceUnavailable, "the hub is starting up"},
		"a rebalance by GET":              {s.ServeRebalance, "GET", atoll.RebalancePath, "", alice, http.StatusMethodNotAllowed, "not supported"},
		"a rebalance of an unknown field": {s.ServeRebalance, "POST", atoll.RebalancePath, `{"everything":true}`, alice, http.StatusBadRequest, `unknown field "everything"`},
		"a rebalance without a user":      {s.ServeRebalance, "POST", atoll.RebalancePath, "{}", nil, http.StatusUnauthorized, "the request has no user"},
		"a rebalance that is too large":   {s.ServeRebalance, "POST", atoll.RebalancePath, `{"namespace":"` + strings.Repeat("x", maxRebalanceBytes) + `"}`, alice, http.StatusBadRequest, "too large"},
	} {
		r := httptest.NewRequest(tc.method, tc.url, strings.NewReader(tc.body))
		if tc.user != nil {
			r = r.WithContext(request.WithUser(r.Context(), tc.user))
		}
		w := httptest.NewRecorder()
		tc.serve(w, r)
		var status metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if w.Code != tc.code || !strings.Contains(status.Message, tc.message) {
			t.Errorf("%s: %d %s", name, w.Code, status.Message)
		}
	}
	if lines := s.PreviewWrite(t.Context(), alice, nil, false); lines != nil {
		t.Errorf("a hub that starts previews %q", lines)
	}
}

func TestKindsThatCannotBeExplained(t *testing.T) {
	own := func(kind string) atoll.ItemKey {
		return atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: kind, Name: "oslo"}
	}
	for want, key := range map[string]atoll.ItemKey{
		"override policies change what is placed":             own("ClusterOverridePolicy"),
		"`atoll get rows -A --cluster oslo`":                  own("Cluster"),
		"a ClusterSet is not placed":                          own("ClusterSet"),
		"objects of kind Event are made by machinery":         {Kind: "Event"},
		"the hub serves no kind Thing.example.com that could": {Group: "example.com", Kind: "Thing"},
	} {
		if got := whyNotExplainable(key); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q in it", key, got, want)
		}
	}
}

// A user that may not read an object receives no other answer about it.
func TestOnlyWhatAUserMayReadIsExplained(t *testing.T) {
	plugin := admission.New(admission.Options{Own: func(user.Info) bool { return false }})
	plugin.SetRESTMapper(meta.NewDefaultRESTMapper(nil))
	plugin.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "alice" && a.GetName() == "web" && (a.GetNamespace() == "shop" || a.GetNamespace() == "") {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	own := func(kind, namespace, name string) atoll.ItemKey {
		return atoll.ItemKey{Group: v1alpha1.GroupVersion.Group, Kind: kind, Namespace: namespace, Name: name}
	}
	for name, c := range map[string]struct {
		user string
		key  atoll.ItemKey
		want atoll.ItemKey
		err  string
	}{
		"a Bundle":                          {"alice", own("Bundle", "shop", "web"), own("Bundle", "shop", "web"), ""},
		"a Bundle of another namespace":     {"alice", own("Bundle", "blog", "web"), atoll.ItemKey{}, `may not in namespace "blog"`},
		"a Bundle, by another user":         {"bob", own("Bundle", "shop", "web"), atoll.ItemKey{}, `"bob" may not in namespace "shop"`},
		"a Bundle without a namespace":      {"alice", own("Bundle", "", "web"), atoll.ItemKey{}, "a Bundle is in a namespace"},
		"a ClusterBundle with a namespace":  {"alice", own("ClusterBundle", "shop", "web"), own("ClusterBundle", "", "web"), ""},
		"a ClusterBundle, by another user":  {"bob", own("ClusterBundle", "", "web"), atoll.ItemKey{}, `"bob" may not`},
		"a kind that cannot be explained":   {"alice", own("Cluster", "", "web"), atoll.ItemKey{}, "a Cluster is not placed"},
		"an object without a kind":          {"alice", own("", "shop", "web"), atoll.ItemKey{}, "name what to explain"},
		"an object without a name":          {"alice", own("Bundle", "shop", ""), atoll.ItemKey{}, "name what to explain"},
		"a kind that is not there, for bob": {"bob", own("Nothing", "shop", "web"), atoll.ItemKey{}, "is not placed"},
	} {
		x := &userQuery{plugin: plugin, user: &user.DefaultInfo{Name: c.user}}
		got, err := x.checkReadableObject(t.Context(), c.key)
		if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, %v, want %q", name, got, err, c.err)
		}
	}
}
