package apiserver

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	karmada "atoll.dev/atoll/api/karmada/config/v1alpha1"
	"atoll.dev/atoll/internal/apiserver/inert"
)

// requiresStrictFields reports whether a write may hold no unknown fields, whatever the client
// requests: those of the hub's own kinds.
func requiresStrictFields(info *request.RequestInfo) bool {
	return info.APIGroup == atollGroup || info.APIGroup == engineGroup ||
		info.APIGroup == karmada.GroupVersion.Group && info.Resource == karmada.CustomizationResource
}

// rewriteQueries changes the queries of requests that mean something else here. It is inside
// authentication, so it has the user, and outside of the API.
func (s *Server) rewriteQueries(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest {
			next.ServeHTTP(w, r)
			return
		}
		if requiresStrictFields(info) && writesObjectBody(info.Verb) && info.Subresource != subresourceProxy {
			r = withQueryParameter(r, "fieldValidation", func(string) string { return metav1.FieldValidationStrict })
		}
		if caller, ok := request.UserFrom(r.Context()); ok && caller.GetName() == user.APIServerUser && inert.NeedsInertFilter(info) {
			r = withQueryParameter(r, "labelSelector", inert.ExcludeInertObjects)
		}
		next.ServeHTTP(w, r)
	})
}

// subresourceProxy is for another API server, which has its own rules.
const subresourceProxy = "proxy"

func writesObjectBody(verb string) bool {
	return verb == "create" || verb == "update" || verb == "patch"
}

// withQueryParameter returns r with one parameter of its query changed. r itself stays
// as it is: other handlers hold it too.
func withQueryParameter(r *http.Request, key string, change func(string) string) *http.Request {
	query := r.URL.Query()
	query.Set(key, change(query.Get(key)))
	url := *r.URL
	url.RawQuery = query.Encode()
	changed := r.WithContext(r.Context())
	changed.URL = &url
	return changed
}
