package atoll

// Placeholders for fields of a Service on the hub that upstream requires. They have no meaning
// in any cluster.
const (
	DummyIPv4            = "192.0.0.8"
	DummyIPv6            = "100:0:0:1::8"
	DummyHealthCheckPort = 9
)
