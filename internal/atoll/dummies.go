package atoll

// What a Service of the hub is given where upstream insists on something: it means nothing
// anywhere, whoever writes it.
const (
	DummyIPv4            = "192.0.0.8"
	DummyIPv6            = "100:0:0:1::8"
	DummyHealthCheckPort = 9
)
