package apiserver

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// running lists what only a process that runs can answer, by resource and subresource,
// where nothing else in the hub answers it.
var running = map[string]map[string]string{
	"services": {"proxy": "cannot be reached"},
}

// refuseContainerRequests answers requests for running containers, which the hub does not have:
// upstream would dial addresses that do not exist. It is at the place of rewriteQueries in the
// handler chain.
func (s *Server) refuseContainerRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || info.APIGroup != "" {
			next.ServeHTTP(w, r)
			return
		}
		if lacks, found := running[info.Resource][info.Subresource]; found {
			err := apierrors.NewBadRequest(fmt.Sprintf("%s %s/%s %s here: the hub keeps templates, and runs nothing; use a cluster that runs it, which `atoll explain` names",
				strings.TrimSuffix(info.Resource, "s"), info.Namespace, info.Name, lacks))
			responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: info.APIVersion}, w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}
