// Package websocket carries connections between an agent and its hub as binary messages of a
// WebSocket, where a proxy between the two speaks nothing but HTTP/1.1: a load balancer, or a
// proxy that inspects TLS.
//
// Contract: the messages carry the bytes of the same mutual TLS that agent and hub use without it.
// The proxy is trusted with nothing, and its certificate is checked only to detect a wrong
// address. Either end of a WebSocket is a tunnel.Conn, with its contract: nothing is dropped,
// unread data stops the sender, and Close cuts it off. It has a goroutine of its own, which ends
// with it. It sends no pings: the pings of the carried connection keep it up.
//
// Open and UpgradeRequest may be called from anywhere.
package websocket
