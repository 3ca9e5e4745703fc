package metrictable

// The agent's work in its member.
var (
	AgentApplies       = agent.addCounter("atoll_agent_applies_total", "Server-side applies sent to the member, by outcome.", "outcome")
	AgentWriteSeconds  = agent.addHistogram("atoll_agent_write_seconds", "Duration of the agent's writes in the member, by verb: apply or delete.", secondsOfWork, "verb")
	AgentWrites        = agent.addCounter("atoll_agent_writes_total", "Writes of the agent in the member that were answered, by verb and by outcome: ok or error.", "verb", "outcome")
	AgentCorrections   = agent.addCounter("atoll_agent_drift_corrections_total", "Objects that were applied again because their fields were changed in the member.")
	AgentDrifted       = agent.addGauge("atoll_agent_drifted_objects", "Observed objects that differ from their templates, or that are missing.")
	AgentAccessReviews = agent.addCounter("atoll_agent_access_reviews_total", "Questions for rights of ServiceAccounts that the hub names, by answer: allowed, denied, error, or cached from the last 10 s.", "answer")
	AgentFailures      = agent.addCounter("atoll_agent_failures_total", "Times that an object began to fail or to wait, by reason.", "reason")
	AgentQueueDepth    = agent.addGauge("atoll_agent_queue_depth", "Objects that were due, under way, failing or corrected lately at the last pass of the agent.")
)

// The agent's link to its hub.
var (
	AgentLinked      = agent.addGauge("atoll_agent_linked", "1 while the agent has a session with the hub.")
	AgentLinkedSince = agent.addGauge("atoll_agent_link_change_timestamp_seconds", "When the agent's session with the hub last began or ended, in Unix seconds; 0 before the first.")
	AgentWebSocket   = agent.addGauge("atoll_agent_websocket", "1 while the hub is reached by WebSocket, through a load balancer.")
	AgentNextCheckIn = agent.addGauge("atoll_agent_next_check_in_timestamp_seconds", "When the agent dials the hub next, in Unix seconds; 0 for one that holds its stream.")
	AgentCheckIns    = agent.addCounter("atoll_agent_check_ins_total", "Sessions with the hub that ended with everything reported.")
	AgentReports     = agent.addCounter("atoll_agent_reports_total", "Statuses of Bundles that differed from the last and were reported.")
	AgentReportDelay = agent.addHistogram("atoll_agent_report_delay_seconds", "Time from the change of a Bundle's status in the member until its report is sent.", secondsOfChange)
	AgentFrames      = agent.addCounter("atoll_agent_frames_total", "Frames of sessions with the hub, by direction and kind.", "direction", "kind")
	AgentCertificate = agent.addGauge("atoll_agent_certificate_expiry_timestamp_seconds", "When the agent's certificate ends, in Unix seconds; 0 before it has one.")
	AgentRenewals    = agent.addCounter("atoll_agent_certificate_renewals_total", "Certificates that came over a session, on the agent's request or by the hub itself.")
)
