package kinds

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// workloadTemplate is a workload's pod template at spec.template.
var workloadTemplate = []podPart{{templatePath: parsePath("spec.template")}}

var (
	specReplicasPath = parsePath("spec.replicas")
	selectorPath     = parsePath("spec.selector")
)

// upstreamKinds are the kinds that Kubernetes itself serves.
var upstreamKinds = map[schema.GroupKind]kindTraits{
	{Group: "apps", Kind: "Deployment"}: {health: deploymentHealth, reflect: reflectDeployment, aggregate: aggregateDeployment,
		replicasPath: specReplicasPath, podParts: workloadTemplate, immutableFields: []fieldPath{selectorPath}},
	{Group: "apps", Kind: "StatefulSet"}: {health: statefulSetHealth, reflect: reflectStatefulSet, aggregate: aggregateStatefulSet,
		replicasPath: specReplicasPath, needsOneCluster: true, podParts: workloadTemplate,
		immutableFields: parsePaths("spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates")},
	{Group: "apps", Kind: "DaemonSet"}: {health: daemonSetHealth, reflect: reflectDaemonSet, aggregate: aggregateDaemonSet, immutableFields: []fieldPath{selectorPath}},
	{Group: "apps", Kind: "ReplicaSet"}: {health: replicaSetHealth, reflect: reflectReplicaSet, aggregate: aggregateReplicaSet,
		replicasPath: specReplicasPath, podParts: workloadTemplate, immutableFields: []fieldPath{selectorPath}},
	{Kind: "ReplicationController"}: {health: replicaSetHealth, reflect: reflectReplicaSet, aggregate: aggregateReplicaSet,
		replicasPath: specReplicasPath, podParts: workloadTemplate},
	{Group: "batch", Kind: "Job"}: {health: jobHealth, reflect: reflectJob, aggregate: aggregateJob, hasEnded: jobEnded, cannotRunAgain: true,
		podCountPath: parsePath("spec.parallelism"), podParts: []podPart{{templatePath: parsePath("spec.template"), countPods: func(m map[string]any) int64 { return countJobPods(nestedMap(m, "spec")) }}},
		memberFields:    parsePaths("spec.selector", "spec.template.metadata.labels"),
		immutableFields: parsePaths("spec.selector", "spec.template", "spec.completionMode", "spec.manualSelector", "spec.podReplacementPolicy")},
	{Group: "batch", Kind: "CronJob"}: {health: cronJobHealth, reflect: reflectCronJob, aggregate: aggregateCronJob},
	{Kind: "Pod"}: {health: podHealth, reflect: reflectPod, aggregate: aggregatePod, hasEnded: podEnded, cannotRunAgain: true, podParts: []podPart{{templatePath: fieldPath{}}},
		memberFields:    parsePaths("spec.nodeName", "spec.serviceAccountName", "spec.tolerations", "spec.priority", "spec.preemptionPolicy"),
		immutableFields: parsePaths("spec.nodeName", "spec.volumes", "spec.serviceAccountName", "spec.restartPolicy", "spec.hostNetwork", "spec.nodeSelector")},

	{Kind: "Service"}: {health: serviceHealth, reflect: reflectLoadBalancerAddresses, aggregate: aggregateLoadBalancerAddresses,
		memberFields:    parsePaths("spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.healthCheckNodePort", "spec.ports[].nodePort"),
		immutableFields: parsePaths("spec.clusterIP", "spec.clusterIPs", "spec.loadBalancerClass")},
	{Group: "networking.k8s.io", Kind: "Ingress"}:       {health: existenceHealth, reflect: reflectLoadBalancerAddresses, aggregate: aggregateLoadBalancerAddresses},
	{Group: "networking.k8s.io", Kind: "IngressClass"}:  statuslessTraits("spec.controller"),
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: statuslessTraits(),
	{Group: "networking.k8s.io", Kind: "IPAddress"}:     {health: existenceHealth, immutableFields: parsePaths("spec.parentRef")},
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:   {health: genericHealth, immutableFields: parsePaths("spec.cidrs")},
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:  statuslessTraits("addressType"),
	{Kind: "Endpoints"}:                                         statuslessTraits(),
	{Kind: "Node"}:                                              {health: genericHealth, memberFields: parsePaths("spec.podCIDR", "spec.podCIDRs", "spec.providerID")},
	{Kind: "Namespace"}:                                         {health: existenceHealth, healthyByExistence: true, memberFields: parsePaths("spec.finalizers")},
	{Kind: "ConfigMap"}:                                         statuslessTraits(),
	{Kind: "Secret"}:                                            statuslessTraits("type"),
	{Kind: "ServiceAccount"}:                                    {health: existenceHealth, healthyByExistence: true, memberFields: parsePaths("secrets", "imagePullSecrets")},
	{Kind: "LimitRange"}:                                        statuslessTraits(),
	{Kind: "ResourceQuota"}:                                     {health: existenceHealth, reflect: reflectQuota, aggregate: aggregateQuota},
	{Kind: "PodTemplate"}:                                       statuslessTraits(),
	{Kind: "Event"}:                                             {health: existenceHealth},
	{Group: "events.k8s.io", Kind: "Event"}:                     {health: existenceHealth},
	{Group: "apps", Kind: "ControllerRevision"}:                 {health: existenceHealth, immutableFields: parsePaths("data")},
	{Group: "coordination.k8s.io", Kind: "Lease"}:               statuslessTraits(),
	{Group: "coordination.k8s.io", Kind: "LeaseCandidate"}:      {health: existenceHealth},
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:                statuslessTraits("handler"),
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:         statuslessTraits("value", "preemptionPolicy"),
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"}: {health: newHealthFunc(healthReader{healthyWithoutStatus: true, progressingConditions: []string{"Dangling"}, observedIsEnough: true})},
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "PriorityLevelConfiguration"}: {health: genericHealth},

	{Kind: "PersistentVolumeClaim"}: {health: volumeClaimHealth, reflect: reflectVolumeClaim, aggregate: aggregateVolumeClaim,
		memberFields:    parsePaths("spec.volumeName", "spec.storageClassName"),
		immutableFields: parsePaths("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName", "spec.volumeMode", "spec.dataSource", "spec.dataSourceRef")},
	{Kind: "PersistentVolume"}: {health: persistentVolumeHealth, reflect: reflectPersistentVolume, aggregate: aggregatePersistentVolume,
		memberFields: parsePaths("spec.claimRef"), immutableFields: parsePaths("spec.volumeMode", "spec.csi", "spec.nfs", "spec.hostPath", "spec.local", "spec.iscsi", "spec.fc")},
	{Group: "storage.k8s.io", Kind: "StorageClass"}:          statuslessTraits("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
	{Group: "storage.k8s.io", Kind: "CSIDriver"}:             statuslessTraits("spec.attachRequired", "spec.volumeLifecycleModes"),
	{Group: "storage.k8s.io", Kind: "CSINode"}:               {health: existenceHealth},
	{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}:    {health: existenceHealth, immutableFields: parsePaths("storageClassName", "nodeTopology")},
	{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"}: {health: existenceHealth, immutableFields: parsePaths("driverName", "parameters")},
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:      {health: existenceHealth, immutableFields: parsePaths("spec")},

	{Group: "policy", Kind: "PodDisruptionBudget"}:          {health: disruptionBudgetHealth, reflect: reflectDisruptionBudget, aggregate: aggregateDisruptionBudget},
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: {health: autoscalerHealth, reflect: reflectAutoscaler, aggregate: aggregateAutoscaler},

	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:               statuslessTraits(),
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        statuslessTraits("roleRef"),
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: statuslessTraits("roleRef"),
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:        statuslessTraits(),

	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:     webhookTraits,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}:   webhookTraits,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:        {health: genericHealth, reflect: reflectAdmissionPolicy, aggregate: aggregateAdmissionPolicy},
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}: {health: existenceHealth},
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}:          {health: existenceHealth},
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}:   {health: existenceHealth},
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: {health: crdHealth,
		memberFields: parsePaths("spec.conversion.webhook.clientConfig.caBundle"), immutableFields: parsePaths("spec.group", "spec.scope", "spec.names.plural", "spec.names.kind")},
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             {health: genericHealth, memberFields: parsePaths("spec.caBundle")},
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: {health: signingRequestHealth, immutableFields: parsePaths("spec")},
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:        {health: existenceHealth, immutableFields: parsePaths("spec.signerName")},
	{Group: "resource.k8s.io", Kind: "DeviceClass"}:                   {health: existenceHealth},
	{Group: "resource.k8s.io", Kind: "ResourceClaim"}:                 {health: existenceHealth, immutableFields: parsePaths("spec")},
	{Group: "resource.k8s.io", Kind: "ResourceClaimTemplate"}:         {health: existenceHealth, immutableFields: parsePaths("spec")},
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}:                 {health: existenceHealth},
	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: {
		health: newHealthFunc(healthReader{degradedConditions: []string{"Failed"}, requiredConditions: []string{"Succeeded"}})},
	{Group: "internal.apiserver.k8s.io", Kind: "StorageVersion"}: {health: existenceHealth},
}

// webhookTraits keep the CA that the member injects.
var webhookTraits = kindTraits{health: existenceHealth, healthyByExistence: true, memberFields: parsePaths("webhooks[].clientConfig.caBundle")}

// statuslessTraits is a kind whose status has no bearing on health.
func statuslessTraits(frozen ...string) kindTraits {
	return kindTraits{health: existenceHealth, healthyByExistence: true, immutableFields: parsePaths(frozen...)}
}

// IsHealthyByExistence reports whether objects of a kind of Kubernetes are healthy without a
// look at their status. Their metadata is all that needs to be read.
func IsHealthyByExistence(gk schema.GroupKind) bool { return traitsOfKind(gk).healthyByExistence }

// RunsOnce reports whether objects of the kind run to completion. An object that is gone is then
// not created again for the same template, unless it NeverEnds.
func RunsOnce(gk schema.GroupKind) bool { return traitsOfKind(gk).hasEnded != nil }

// RunsAgainOnEdit reports whether an edit of an object that RunsOnce starts another run. It does
// not for a Job or a Pod, whose specification is immutable.
func RunsAgainOnEdit(gk schema.GroupKind) bool {
	k := traitsOfKind(gk)
	return k.hasEnded != nil && !k.cannotRunAgain
}

// NeverEnds reports whether an object of a kind that RunsOnce states that it never ends, such as
// a stream that is restarted whenever it ends. Such an object exists as long as its template
// does.
func NeverEnds(obj *unstructured.Unstructured) bool {
	k := traitsOf(obj)
	return k.runsForever != nil && k.runsForever(obj)
}

// HasFinished reports whether an object that RunsOnce has run to completion, with or without
// success. It is never created again for the same content, unless it NeverEnds and was stopped.
func HasFinished(obj *unstructured.Unstructured) bool {
	k := traitsOf(obj)
	return k.hasEnded != nil && k.hasEnded(obj)
}

func jobEnded(obj *unstructured.Unstructured) bool {
	cs := conditionsOf(statusOf(obj))
	return findCondition(cs, "Complete").hasStatus("True") || findCondition(cs, "Failed").hasStatus("True")
}

func podEnded(obj *unstructured.Unstructured) bool {
	phase := stringField(statusOf(obj), "phase")
	return phase == "Succeeded" || phase == "Failed"
}

// countJobPods returns the number of concurrent pods of a Job's spec.
func countJobPods(spec map[string]any) int64 {
	n := countFieldOr(spec, "parallelism", 1)
	return min(n, countFieldOr(spec, "completions", n))
}
