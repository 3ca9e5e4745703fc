// Package websocket carries connections between an agent and its hub as binary messages
// of a WebSocket, where something between the two speaks nothing but HTTP/1.1: a load
// balancer, or a proxy that looks into TLS.
//
// Contract: what is carried is bytes, those of the same mutual TLS that agent and hub speak
// without it; who stands between is trusted with nothing, and the certificate that it shows
// is checked only so that a wrong address is told from a right one. Either end of a
// WebSocket is a tunnel.Conn, with its contract: nothing is dropped, what nobody reads stops
// the sender, and Close cuts it off. It has a goroutine of its own, which ends with it. It
// sends no pings: the pings of what it carries keep it up.
//
// Open and Upgrade may be called from anywhere.
package websocket
