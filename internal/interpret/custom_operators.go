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
	{Group: "monitoring.coreos.com", Kind: "ServiceMonitor"}:     config,
	{Group: "monitoring.coreos.com", Kind: "PodMonitor"}:         config,
	{Group: "monitoring.coreos.com", Kind: "Probe"}:              config,
	{Group: "monitoring.coreos.com", Kind: "ScrapeConfig"}:       config,
	{Group: "monitoring.coreos.com", Kind: "PrometheusRule"}:     config,
	{Group: "monitoring.coreos.com", Kind: "AlertmanagerConfig"}: config,
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
	{Group: "kafka.strimzi.io", Kind: "KafkaRebalance"}: {
		health: judge(reading{held: []string{"ProposalReady", "ReconciliationPaused", "Stopped"},
			busy: []string{"PendingProposal", "Rebalancing", "NotReady"}, must: []string{"Ready"}})},
}

// kafkaHealth: NotReady, where it is there, is tried again every few minutes, unless what
// is asked for cannot be.
func kafkaHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if c := find(conditionsOf(status(obj)), "NotReady"); c.is("True") && c.reason == "InvalidResourceException" {
		return atoll.Degraded, c.reason, c.message
	}
	r := reading{held: []string{"ReconciliationPaused"}, busy: []string{"NotReady"}, must: []string{"Ready"}}
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
	{Group: "postgresql.cnpg.io", Kind: "ImageCatalog"}:        config,
	{Group: "postgresql.cnpg.io", Kind: "ClusterImageCatalog"}: config,
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
	{Group: "beat.k8s.elastic.co", Kind: "Beat"}:                         {health: colours, phase: at("health")},
	{Group: "agent.k8s.elastic.co", Kind: "Agent"}:                       {health: colours, phase: at("health")},
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
