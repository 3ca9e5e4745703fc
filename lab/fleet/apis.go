package fleet

import (
	"slices"
	"strings"
)

// memberVersion is the Kubernetes version of simulated members.
const memberVersion = "v1.36.3"

// servedAPIs returns the APIs that a simulated member serves, as "group/version/Kind",
// sorted.
func servedAPIs() []string {
	var out []string
	for group, kinds := range map[string]string{
		"/v1":                             "ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount",
		"admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
		"apiextensions.k8s.io/v1":         "CustomResourceDefinition",
		"apiregistration.k8s.io/v1":       "APIService",
		"apps/v1":                         "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
		"autoscaling/v1":                  "HorizontalPodAutoscaler",
		"autoscaling/v2":                  "HorizontalPodAutoscaler",
		"batch/v1":                        "CronJob Job",
		"certificates.k8s.io/v1":          "CertificateSigningRequest",
		"coordination.k8s.io/v1":          "Lease",
		"discovery.k8s.io/v1":             "EndpointSlice",
		"events.k8s.io/v1":                "Event",
		"flowcontrol.apiserver.k8s.io/v1": "FlowSchema PriorityLevelConfiguration",
		"networking.k8s.io/v1":            "IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR",
		"node.k8s.io/v1":                  "RuntimeClass",
		"policy/v1":                       "PodDisruptionBudget",
		"rbac.authorization.k8s.io/v1":    "ClusterRole ClusterRoleBinding Role RoleBinding",
		"resource.k8s.io/v1":              "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
		"scheduling.k8s.io/v1":            "PriorityClass",
		"storage.k8s.io/v1":               "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass",
	} {
		for kind := range strings.FieldsSeq(kinds) {
			out = append(out, group+"/"+kind)
		}
	}
	slices.Sort(out)
	return out
}
