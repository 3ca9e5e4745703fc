package metrictable

// secondsOfChange are the buckets of what a person waits for: from a tenth of a second to a day.
var secondsOfChange = []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400}

// secondsOfWork are the buckets of one piece of work in a process.
var secondsOfWork = []float64{0.0001, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 60}

// The objects of the fleet, counted from the tables. Each hub of several counts all of them.
var (
	Bundles           = hub.addGauge("atoll_bundles", "Bundles and ClusterBundles by condition, its status and its reason.", "condition", "status", "reason")
	BundleOldestWait  = hub.addGauge("atoll_bundle_oldest_wait_seconds", "Age of the oldest condition of a Bundle that is not as it should be, since the status of the condition last changed.", "condition", "reason")
	BundleClusters    = hub.addGauge("atoll_bundle_clusters", "Sum over all Bundles of the clusters in their status: Desired, Updated, Ready, Disconnected and Removing.", "state")
	RolloutWaits      = hub.addGauge("atoll_bundle_rollouts_waiting", "Bundles with clusters that wait for their turn in a rollout, by reason.", "reason")
	Rows              = hub.addGauge("atoll_rows", "Rows, each one Bundle in one cluster, by phase and by the reason of their wait; None: the row waits for nothing. Rows in disconnected clusters are among them.", "phase", "reason")
	RowOldestWait     = hub.addGauge("atoll_row_oldest_wait_seconds", "Age of the oldest wait of a row, by reason: since its phase or its reported state began. It is absent for WaitsForApply, where no such time is stored.", "reason")
	DriftedObjects    = hub.addGauge("atoll_drifted_objects", "Sum over all rows of the objects that their clusters only observe, and that differ from their templates or are missing, by the last reports.")
	Clusters          = hub.addGauge("atoll_clusters", "Clusters by condition, its status and its reason.", "condition", "status", "reason")
	ClusterOldestWait = hub.addGauge("atoll_cluster_oldest_wait_seconds", "Age of the oldest condition of a Cluster that is not as it should be, since the status of the condition last changed.", "condition", "reason")
	ChangeSeconds     = hub.addHistogram("atoll_change_seconds", "Time from the moment at which the leading hub sees a user's write. It is observed once a Bundle when the Revision is bound and when its status is shown, and once a row when the row is ordered, applied and healthy. Rows that come after the Bundle was shown are not observed.", secondsOfChange, "stage")
)

// The loops and writers of the hub.
var (
	QueueDepth       = hub.addGauge("atoll_queue_depth", "Keys that wait for a worker of a reconcile loop, without keys that wait for a time.", "queue")
	QueueReconciles  = hub.addCounter("atoll_queue_reconciles_total", "Reconciled keys, by result: ok, error or panic.", "queue", "result")
	QueueSeconds     = hub.addHistogram("atoll_queue_reconcile_seconds", "Duration of the reconcile of one key.", secondsOfWork, "queue")
	PlacerDecisions  = hub.addCounter("atoll_placer_decisions_total", "Decisions about the rows of a Bundle, by result: written, unchanged, outdated (rows changed in between) or failed.", "result")
	PlacerOrders     = hub.addCounter("atoll_placer_orders_total", "Orders to clusters that this hub wrote, by cause: Placement, Revision, Override, Replicas, Leaving, Removal or Forgotten.", "cause")
	PlacerFailures   = hub.addCounter("atoll_placer_failed_copies_total", "Copies of Bundles that began to count as failed, by the failover of their policies.")
	StatusWrites     = hub.addCounter("atoll_status_writes_total", "Statuses written to Bundles and templates, by cause: news or counts.", "object", "cause")
	DirectWrites     = hub.addCounter("atoll_direct_writes_total", "Writes of the hub's own bookkeeping that went straight to the store.", "verb", "resource", "subresource")
	ClusterWrites    = hub.addCounter("atoll_inventory_cluster_writes_total", "Writes of Clusters' statuses.")
	ClusterHeld      = hub.addGauge("atoll_inventory_silent_clusters_held", "Clusters whose silence is not written, since too much of the fleet is silent at once.")
	FailoverClusters = hub.addGauge("atoll_failover_clusters", "Clusters that are Lost, that have the taint of the hub (Tainted), and that would have it if fewer were lost (Paused). 0 without a failover in the HubSettings.", "state")
	PushClusters     = hub.addGauge("atoll_push_clusters", "Clusters whose agents this hub runs, or would, by the reason of their condition Pushed.", "reason")
	PushPanics       = hub.addCounter("atoll_push_panics_total", "Panics in agents that this hub runs, each of which ended that agent alone.")
	StoreSize        = hub.addGauge("atoll_store_size_bytes", "Size of etcd's database; with an etcd of your own, that of its largest member.")
	StoreUsed        = hub.addGauge("atoll_store_used_bytes", "Bytes of etcd's database that are in use, without pages that a defragmentation gives back; with an etcd of your own, those of the member that uses most.")
	StoreQuota       = hub.addGauge("atoll_store_quota_bytes", "Size at which etcd takes no writes; 0 with an etcd of your own before 3.6, which does not report it.")
	StoreSpace       = hub.addGauge("atoll_store_space_state", "Room in etcd: 0 free, 1 reserve, where writes of users that grow the store are refused, 2 full, where etcd takes deletions only.")
	StoreRefusals    = hub.addCounter("atoll_store_refused_writes_total", "Writes that the API refused because the store is nearly full or full.")
	HubLeading       = hub.addGauge("atoll_hub_leading", "Whether this hub decides: 1 or 0. One of several hubs on one etcd does.")
	HubHolding       = hub.addGauge("atoll_hub_holding", "Whether the hub orders nothing of any member, since it was restored and awaits a decision: 1 or 0.")
	HubUnreadKinds   = hub.addGauge("atoll_hub_unread_kinds", "Kinds of objects that the hub serves and has not read in full; Bundles with objects of such a kind wait.")
	HubCertificate   = hub.addGauge("atoll_hub_certificate_expiry_timestamp_seconds", "When the hub's CAs and its own certificates end, in Unix seconds.", "certificate")
	WebhookRequests  = hub.addCounter("atoll_webhook_requests_total", "Requests of git servers to check a Repository, by result: accepted, refused (they prove no token), or postponed (too many of the network prove nothing, or the hub starts).", "result")
	NotifyMessages   = hub.addCounter("atoll_notification_messages_total", "Messages of Notifications, by type of the target and by result: taken, or failed, after which the hub tries again.", "target", "result")
	UndoChanges      = hub.addGauge("atoll_undo_changes", "Changes that are kept for undo.")
	UndoBytes        = hub.addGauge("atoll_undo_bytes", "Bytes of the store that changes take which are kept for undo.")
	UndoNotKept      = hub.addCounter("atoll_undo_not_kept_total", "Changes of users that this hub could not keep for undo: their content is too large, one request changed too many, or the store took no write.")
	HubFormerCAAgent = hub.addGauge("atoll_hub_agents_of_former_ca", "Agents that are in touch and not known to have certificates of the present CA, while a rotation is under way; 0 else.")
)

// The gateway, where agents connect.
var (
	GatewayConnections         = hub.addGauge("atoll_gateway_connections", "Open connections of agents, of joining agents, and of other hubs.")
	GatewayWebSockets          = hub.addGauge("atoll_gateway_websockets", "Agents' connections by WebSocket, through load balancers.")
	GatewayStreams             = hub.addGauge("atoll_gateway_streams", "Agents that hold a stream.")
	GatewayUnclaimed           = hub.addGauge("atoll_gateway_unclaimed_bundles", "Bundles that connected members hold without a row.")
	GatewayMessages            = hub.addCounter("atoll_gateway_messages_total", "Frames by direction and kind.", "direction", "kind")
	GatewayBytes               = hub.addCounter("atoll_gateway_bytes_total", "Bytes of frames by direction and kind.", "direction", "kind")
	GatewayResyncs             = hub.addCounter("atoll_gateway_resyncs_total", "Comparisons with agents, by whether digests were equal.", "equal")
	GatewayRenders             = hub.addCounter("atoll_gateway_renders_total", "Manifests rendered, each after a miss of the cache.")
	GatewayRenderFailures      = hub.addCounter("atoll_gateway_render_failures_total", "Manifests that could not be rendered.")
	GatewayRenderSeconds       = hub.addHistogram("atoll_gateway_render_seconds", "Duration of the rendering of one manifest.", secondsOfWork)
	GatewayQuarantines         = hub.addCounter("atoll_gateway_quarantines_total", "Revisions of Bundles that were quarantined, because rendering them costs too much.")
	GatewayQuarantined         = hub.addGauge("atoll_gateway_quarantined_bundles", "Bundles with a Revision that this hub does not render now.")
	GatewayEncodes             = hub.addCounter("atoll_gateway_encodes_total", "Manifests encoded.")
	GatewayCacheHits           = hub.addCounter("atoll_gateway_render_cache_hits_total", "Manifests that were in the cache.")
	GatewayCacheBytes          = hub.addGauge("atoll_gateway_render_cache_bytes", "Bytes of rendered content in the cache.")
	GatewayStatusWrites        = hub.addCounter("atoll_gateway_status_writes_total", "Writes of reported statuses per bundle, by result.", "result")
	GatewayReportsWritten      = hub.addCounter("atoll_gateway_reports_written_total", "Reports that were written.")
	GatewayReportWait          = hub.addCounter("atoll_gateway_reports_waited_seconds_total", "Seconds that written reports waited, from their arrival to the end of their write.")
	GatewayRefused             = hub.addCounter("atoll_gateway_refused_total", "Joins, streams and frames refused, by reason.", "what", "reason")
	GatewayIssued              = hub.addCounter("atoll_gateway_certificates_issued_total", "Certificates issued to agents, by reason: join (also by a known key), renewal, and rotation of the hub's CAs.", "why")
	GatewayCertificatesOverdue = hub.addGauge("atoll_gateway_agent_certificates_overdue", "Connected agents with less than a quarter of their certificate's lifetime left: their renewals fail.")
	GatewaySoonestExpiry       = hub.addGauge("atoll_gateway_agent_certificate_soonest_expiry_timestamp_seconds", "When the first certificate of a connected agent ends, in Unix seconds; 0 while no agent is connected.")
)

// The proxy to members.
var (
	ProxyRequests = hub.addCounter("atoll_proxy_requests_total", "Requests to members through the hub that were answered, by verb and HTTP status, those that the hub refused among them.", "verb", "code")
	ProxyUnderWay = hub.addGauge("atoll_proxy_requests", "Requests to members through the hub that are under way.")
	ProxyTunnels  = hub.addGauge("atoll_proxy_tunnels", "Tunnels to agents, those that wait for another request among them.")
	ProxyBytes    = hub.addCounter("atoll_proxy_bytes_total", "Bytes that went to members and came from them by tunnels, by direction.", "direction")
)
