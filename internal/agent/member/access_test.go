package member

import (
	"encoding/json"
	"net/http"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The agent asks about a ServiceAccount as itself, also where it writes in the name of another one. Only a clear yes
// allows.
func TestTheRightsOfAServiceAccountAreReviewed(t *testing.T) {
	for name, c := range map[string]struct {
		status string
		code   int
		want   bool
		fails  bool
	}{
		"allowed":            {`{"allowed":true}`, 201, true, false},
		"not allowed":        {`{"allowed":false}`, 201, false, false},
		"allowed and denied": {`{"allowed":true,"denied":true}`, 201, false, false},
		"no answer":          {`{}`, 201, false, false},
		"of another type":    {`{"allowed":"true"}`, 201, false, false},
		"forbidden":          {`{}`, 403, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var review authorizationv1.SubjectAccessReview
			client := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != "/apis/authorization.k8s.io/v1/subjectaccessreviews" || r.Header.Get("Impersonate-User") != "" {
					t.Errorf("%s %s as %q", r.Method, r.URL, r.Header.Get("Impersonate-User"))
				}
				if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
					t.Error(err)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.code)
				_, _ = w.Write([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":` + c.status + `}`))
			}))
			ctx := WithServiceAccount(t.Context(), "shop", "impersonated")
			got, err := client.ReviewAccess(ctx, Access{Account: "shop/deployer", Verb: "patch", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "shop", Name: "web"})
			if got != c.want || (err != nil) != c.fails || c.fails && !apierrors.IsForbidden(err) {
				t.Errorf("%t, %v", got, err)
			}
			want := authorizationv1.ResourceAttributes{Verb: "patch", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "shop", Name: "web"}
			if s := review.Spec; s.User != "system:serviceaccount:shop:deployer" || s.ResourceAttributes == nil || *s.ResourceAttributes != want {
				t.Errorf("the question is %+v", review.Spec)
			}
		})
	}
}

// A text that names no ServiceAccount is not asked about.
func TestAnAccountWithoutANamespaceIsNotAsked(t *testing.T) {
	client := newClient(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the member was asked") }))
	if allowed, err := client.ReviewAccess(t.Context(), Access{Account: "deployer", Verb: "get"}); allowed || err == nil {
		t.Errorf("%t, %v", allowed, err)
	}
}
