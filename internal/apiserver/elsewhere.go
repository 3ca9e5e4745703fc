package apiserver

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes/scheme"
)

// running lists what only a process that runs can answer, by resource and
// subresource.
var running = map[string]map[string]string{
	"pods": {
		"log": "has no logs", "exec": "takes no commands", "attach": "cannot be attached to", "portforward": "has no ports",
		"proxy": "cannot be reached", "ephemeralcontainers": "takes no debug containers",
	},
	"services": {"proxy": "cannot be reached"},
}

// elsewhere answers requests for what runs, which here is nothing: upstream would
// look for the node, and give an empty log. It stands where rewrite stands.
func (s *Server) elsewhere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || info.APIGroup != "" {
			next.ServeHTTP(w, r)
			return
		}
		if lacks, found := running[info.Resource][info.Subresource]; found {
			err := apierrors.NewBadRequest(fmt.Sprintf("%s %s/%s %s here: the hub keeps templates, and runs nothing; ask a cluster that runs it, which `atoll explain` names",
				strings.TrimSuffix(info.Resource, "s"), info.Namespace, info.Name, lacks))
			responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: info.APIVersion}, w, r)
			return
		}
		// A client that waits for the pods of a workload, as `kubectl logs deploy/web`
		// does, would wait until it gives up.
		if caller, ok := request.UserFrom(r.Context()); ok && !s.identities.isOwn(caller) &&
			info.Resource == "pods" && info.Verb == "watch" && r.URL.Query().Get("labelSelector") != "" {
			warning.AddWarning(r.Context(), "", "workloads make no pods on the hub: theirs are in the clusters that run them, which `atoll explain` names")
		}
		next.ServeHTTP(w, r)
	})
}
