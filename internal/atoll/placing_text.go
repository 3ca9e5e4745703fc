package atoll

import (
	"fmt"

	"atoll.dev/atoll/api/v1alpha1"
)

// DescribeSourceEditor returns the person that may edit what a Bundle comes from.
func DescribeSourceEditor(s v1alpha1.BundleSource) string {
	switch s.Kind {
	case v1alpha1.SourceAnnotation, v1alpha1.SourceNamespaceAnnotation:
		return "the annotation's author"
	case v1alpha1.SourceHubSettings:
		return "the hub's administrator"
	}
	return "the policy's owner"
}

// PlaceEverywhereCommand returns the command that places an object in every cluster. resource is as kubectl
// takes it; an empty namespace stands for none.
func PlaceEverywhereCommand(resource, namespace, name string) string {
	in := ""
	if namespace != "" {
		in = " -n " + namespace
	}
	return fmt.Sprintf("kubectl annotate %s/%s%s %s='*'", resource, name, in, AnnotationClusters)
}

// HubOnlyCommand returns the command that keeps an object on the hub. resource is as kubectl takes it;
// an empty namespace stands for none.
func HubOnlyCommand(resource, namespace, name string) string {
	in := ""
	if namespace != "" {
		in = " -n " + namespace
	}
	return fmt.Sprintf("kubectl annotate %s/%s%s %s=true", resource, name, in, KeyHubOnly)
}
