package apiserver

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/apiserver/inert"
)

// strictGroups are the groups whose writes may not hold unknown fields,
// whatever the client asks for.
var strictGroups = map[string]bool{"atoll.dev": true, engineGroup: true}

// rewrite changes the queries of requests that mean something else here: it
// stands inside authentication, so it knows who asks, and outside of the API.
func (s *Server) rewrite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest {
			next.ServeHTTP(w, r)
			return
		}
		if strictGroups[info.APIGroup] && isWrite(info.Verb) {
			r = withQuery(r, "fieldValidation", func(string) string { return metav1.FieldValidationStrict })
		}
		if caller, ok := request.UserFrom(r.Context()); ok && caller.GetName() == user.APIServerUser && inert.Hidden(info) {
			r = withQuery(r, "labelSelector", inert.ExcludeFrom)
		}
		next.ServeHTTP(w, r)
	})
}

func isWrite(verb string) bool { return verb == "create" || verb == "update" || verb == "patch" }

// withQuery returns r with one parameter of its query changed. r itself stays
// as it is: other handlers hold it too.
func withQuery(r *http.Request, key string, change func(string) string) *http.Request {
	query := r.URL.Query()
	query.Set(key, change(query.Get(key)))
	url := *r.URL
	url.RawQuery = query.Encode()
	changed := r.WithContext(r.Context())
	changed.URL = &url
	return changed
}
