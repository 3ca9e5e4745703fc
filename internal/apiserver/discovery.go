package apiserver

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	genericapiserver "k8s.io/apiserver/pkg/server"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// groupOrder are the groups that people use most; they come first in discovery,
// so that a short name which two groups share means theirs.
var groupOrder = []string{"", "apps", "batch", "autoscaling", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io"}

const (
	// firstPriority ranks the first group of groupOrder, otherPriority all
	// that are not in it. Custom resources come at 1000 and below.
	firstPriority = 18000
	groupStep     = 100
	otherPriority = 16000
)

// groupPriorities ranks the groups and versions that server serves and that have an APIService.
func (s *Server) groupPriorities(server *genericapiserver.GenericAPIServer) map[schema.GroupVersion]controlplaneapiserver.APIServicePriority {
	all := groupPriorities(server)
	for _, group := range s.options.Groups {
		for _, version := range group.PrioritizedVersions {
			delete(all, version)
		}
	}
	return all
}

// groupPriorities ranks every group and version that server serves: groups by
// groupOrder, versions by maturity, then newness.
func groupPriorities(server *genericapiserver.GenericAPIServer) map[schema.GroupVersion]controlplaneapiserver.APIServicePriority {
	versions := map[string][]string{}
	for _, path := range server.ListedPaths() {
		switch parts := strings.Split(path, "/"); {
		case path == "/api/v1":
			versions[""] = []string{"v1"}
		case len(parts) == 4 && parts[1] == "apis":
			versions[parts[2]] = append(versions[parts[2]], parts[3])
		}
	}
	priorities := map[schema.GroupVersion]controlplaneapiserver.APIServicePriority{}
	for group, list := range versions {
		rank := int32(otherPriority)
		if at := slices.Index(groupOrder, group); at >= 0 {
			rank = firstPriority - int32(at*groupStep)
		}
		slices.SortFunc(list, version.CompareKubeAwareVersionStrings)
		for i, v := range list {
			priorities[schema.GroupVersion{Group: group, Version: v}] = controlplaneapiserver.APIServicePriority{Group: rank, Version: int32(i + 1)}
		}
	}
	return priorities
}
