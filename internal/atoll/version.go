package atoll

// Version of Atoll: hub, agent and CLI are released together.
const Version = "v0.1.0"
