package interpret

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
)

// monitored kinds of the Prometheus operator that run pods.
var monitored = judge(reading{paused: at("spec.paused"), must: []string{"Reconciled", "Available"}})

// sized is a component whose number and resources stand in the spec.
func sized(name string, number func(map[string]any) int64) []part {
	return []part{{name: name, number: number, requests: resourcesAt("spec.resources")}}
}

// prometheus operator: what it runs, and what that reads.
var prometheus = custom{
	{Group: "monitoring.coreos.com", Kind: "Prometheus"}:         {health: monitored, pods: sized("prometheus", sharded)},
	{Group: "monitoring.coreos.com", Kind: "PrometheusAgent"}:    {health: monitored, pods: sized("prometheus", sharded)},
	{Group: "monitoring.coreos.com", Kind: "Alertmanager"}:       {health: monitored, pods: sized("alertmanager", numberAt("spec.replicas", 1))},
	{Group: "monitoring.coreos.com", Kind: "ThanosRuler"}:        {health: monitored, pods: sized("thanos-ruler", numberAt("spec.replicas", 1))},
	{Group: "monitoring.coreos.com", Kind: "ServiceMonitor"}:     bound,
	{Group: "monitoring.coreos.com", Kind: "PodMonitor"}:         bound,
	{Group: "monitoring.coreos.com", Kind: "Probe"}:              bound,
	{Group: "monitoring.coreos.com", Kind: "ScrapeConfig"}:       bound,
	{Group: "monitoring.coreos.com", Kind: "PrometheusRule"}:     bound,
	{Group: "monitoring.coreos.com", Kind: "AlertmanagerConfig"}: bound,
}

// bound to what reads it, which newer versions of the operator may tell: one that was refused
// is read by nobody, for as long as it stays what it is.
var bound = kind{health: boundHealth}

func boundHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	for _, b := range list(status(obj), "bindings") {
		m, _ := b.(map[string]any)
		switch c := find(conditionsOf(m), "Accepted"); {
		case c.hasObserved && c.observed < obj.GetGeneration():
			return unobserved()
		case c.is("False"):
			return atoll.Degraded, orElse(c.reason, "NotAccepted"), orElse(c.message, text(m, "resource")+" "+text(m, "name")+" does not accept it")
		}
	}
	return healthy()
}

// sharded: each shard has all the replicas. Of agents that run on every node, none are
// counted.
func sharded(m map[string]any) int64 {
	sp := child(m, "spec")
	if text(sp, "mode") == "DaemonSet" {
		return 0
	}
	return atoll.Times(countOr(sp, "replicas", 1), countOr(sp, "shards", 1))
}

// strimzi: Kafka and what goes with it.
var strimzi = custom{
	{Group: "kafka.strimzi.io", Kind: "Kafka"}: {health: kafkaHealth, pods: []part{
		{name: "kafka", number: numberAt("spec.kafka.replicas", 0), requests: resourcesAt("spec.kafka.resources")},
		{name: "zookeeper", number: numberAt("spec.zookeeper.replicas", 0), requests: resourcesAt("spec.zookeeper.resources")},
	}},
	{Group: "kafka.strimzi.io", Kind: "KafkaNodePool"}:     {health: settles, pods: sized("kafka", numberAt("spec.replicas", 0))},
	{Group: "kafka.strimzi.io", Kind: "KafkaConnect"}:      {health: kafkaHealth, pods: sized("connect", numberAt("spec.replicas", 3))},
	{Group: "kafka.strimzi.io", Kind: "KafkaMirrorMaker2"}: {health: kafkaHealth, pods: sized("mirror-maker", numberAt("spec.replicas", 3))},
	{Group: "kafka.strimzi.io", Kind: "KafkaBridge"}:       {health: kafkaHealth, pods: sized("bridge", numberAt("spec.replicas", 1))},
	{Group: "kafka.strimzi.io", Kind: "KafkaConnector"}:    {health: kafkaHealth},
	{Group: "kafka.strimzi.io", Kind: "KafkaTopic"}:        {health: kafkaHealth},
	{Group: "kafka.strimzi.io", Kind: "KafkaUser"}:         {health: kafkaHealth},
	{Group: "kafka.strimzi.io", Kind: "KafkaRebalance"}:    {health: rebalanceHealth},
}

// kafkaRefusals are reasons for not being ready that no further try gets over.
var kafkaRefusals = map[string]bool{
	"InvalidResourceException": true, "InvalidRequestException": true, "NotSupported": true, "ResourceConflict": true,
}

// kafkaHealth: NotReady, where it is there, is tried again every few minutes, unless what
// is asked for cannot be.
func kafkaHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(status(obj))
	for _, c := range []condition{find(cs, "NotReady"), find(cs, "Ready")} {
		if c.is(map[string]string{"NotReady": "True", "Ready": "False"}[c.kind]) && kafkaRefusals[c.reason] {
			return atoll.Degraded, c.reason, c.message
		}
	}
	r := reading{held: []string{"ReconciliationPaused"}, busy: []string{"NotReady"}, must: []string{"Ready"}}
	return r.verdict(obj)
}

// rebalanceHealth: one that is not ready stays so until somebody asks for it again; one that is
// a template of others never begins.
func rebalanceHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if obj.GetAnnotations()["strimzi.io/rebalance-template"] == "true" {
		return healthy()
	}
	r := reading{held: []string{"ProposalReady", "ReconciliationPaused", "Stopped"}, bad: []string{"NotReady"},
		busy: []string{"PendingProposal", "Rebalancing"}, must: []string{"Ready"}}
	return r.verdict(obj)
}

// cloudNativePG: databases, their backups, and what pools connections to them.
var cloudNativePG = custom{
	{Group: "postgresql.cnpg.io", Kind: "Cluster"}: {
		health: judge(reading{held: []string{"cnpg.io/hibernation"}, must: []string{"Ready"}}),
		pods:   sized("postgres", numberAt("spec.instances", 1))},
	{Group: "postgresql.cnpg.io", Kind: "Backup"}: {ended: endedIn(phase, "completed", "failed"),
		health: judge(reading{phase: phase, message: at("error"), other: busy, phases: map[string]atoll.Health{
			"completed": good, "failed": bad, "walArchivingFailing": busy}})},
	{Group: "postgresql.cnpg.io", Kind: "ScheduledBackup"}: {health: judge(reading{paused: at("spec.suspend"), config: true, seen: true})},
	{Group: "postgresql.cnpg.io", Kind: "Pooler"}: {health: existing, pods: []part{
		{name: "pooler", number: numberAt("spec.instances", 1), template: at("spec.template")}}},
	{Group: "postgresql.cnpg.io", Kind: "Database"}:            {health: appliedHealth},
	{Group: "postgresql.cnpg.io", Kind: "Publication"}:         {health: appliedHealth},
	{Group: "postgresql.cnpg.io", Kind: "Subscription"}:        {health: appliedHealth},
	{Group: "postgresql.cnpg.io", Kind: "ImageCatalog"}:        config,
	{Group: "postgresql.cnpg.io", Kind: "ClusterImageCatalog"}: config,
}

// appliedHealth of what is made within a database; what could not be is tried again.
func appliedHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	h, reason, message := (&reading{seen: true}).verdict(obj)
	if st := status(obj); h == atoll.Healthy && !flag(st, "applied") {
		return atoll.Progressing, "NotApplied", text(st, "message")
	}
	return h, reason, message
}

// elastic's operator tells by colours.
var elastic = custom{
	{Group: "elasticsearch.k8s.elastic.co", Kind: "Elasticsearch"}: {health: elasticsearchHealth,
		pods: []part{{list: at("spec.nodeSets"), key: "name", number: numberAt("count", 1), template: at("podTemplate")}}},
	{Group: "kibana.k8s.elastic.co", Kind: "Kibana"}:                     coloured("kibana"),
	{Group: "apm.k8s.elastic.co", Kind: "ApmServer"}:                     coloured("apm-server"),
	{Group: "enterprisesearch.k8s.elastic.co", Kind: "EnterpriseSearch"}: coloured("enterprise-search"),
	{Group: "maps.k8s.elastic.co", Kind: "ElasticMapsServer"}:            coloured("maps"),
	{Group: "logstash.k8s.elastic.co", Kind: "Logstash"}:                 coloured("logstash"),
	{Group: "packageregistry.k8s.elastic.co", Kind: "PackageRegistry"}:   coloured("package-registry"),
	{Group: "autoscaling.k8s.elastic.co", Kind: "ElasticsearchAutoscaler"}: {
		health: judge(reading{must: []string{"Active", "Healthy", "Online"}})},
	{Group: "stackconfigpolicy.k8s.elastic.co", Kind: "StackConfigPolicy"}: {
		health: judge(reading{phase: phase, phases: map[string]atoll.Health{
			"Ready": good, "ApplyingChanges": busy, "Error": busy, "Invalid": bad, "Conflict": bad, "Unknown": atoll.Unknown}})},
	{Group: "beat.k8s.elastic.co", Kind: "Beat"}:   {health: colours, phase: at("health")},
	{Group: "agent.k8s.elastic.co", Kind: "Agent"}: {health: colours, phase: at("health")},
}

// colours of what has no data of its own: it is red while nothing of it runs yet.
var colours = judge(reading{phase: at("health"), phases: map[string]atoll.Health{
	"green": good, "yellow": busy, "red": busy, "unknown": busy}})

func coloured(component string) kind {
	return kind{health: colours, phase: at("health"),
		pods: []part{{name: component, number: numberAt("spec.count", 1), template: at("spec.podTemplate")}}}
}

// elasticsearchHealth: yellow is all of the data, only not as often as is asked for, and
// what a single node stays at for ever; red is data that cannot be reached.
func elasticsearchHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	changing := reading{phase: phase, phases: map[string]atoll.Health{
		"Ready": good, "ApplyingChanges": busy, "MigratingData": busy, "Stalled": bad, "Invalid": bad}}
	if h, reason, message := changing.verdict(obj); h != atoll.Healthy {
		return h, reason, message
	}
	colour := reading{phase: at("health"), phases: map[string]atoll.Health{
		"green": good, "yellow": good, "red": bad, "unknown": busy}}
	return colour.verdict(obj)
}
