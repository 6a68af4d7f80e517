package main

// The original's own words, at the places where it says them.
const (
	saidSize      = "Received message size is not supported"
	saidCount     = "Amount of messages to be sent by the client is less than 1"
	saidDevice    = "Failed to open Comm Channel DOCA device based on PCI address"
	saidRep       = "Failed to open Comm Channel DOCA device representor based on PCI address"
	saidListening = "Started Listening, waiting for new connection"
	saidNoListen  = "Secure Channel server couldn't start listening"
	saidConnected = "Connection to DPU was established successfully"
	saidNoConnect = "Couldn't establish a connection with DPU node"
	saidMet       = "Connection has been established"
	saidStarting  = "Starting message transmission. Will send %d messages of size %d bytes"
	saidSendFrom  = "SEND START TIME: %s"
	saidSendTo    = "send end at: %s"
	saidRecvFrom  = "RECV START TIME: %s"
	saidRecvTo    = "receive end at: %s"
	saidOneSent   = "message sent: %d"
	saidNotSent   = "Message number %d was not sent"
	saidNotCame   = "Failed to receive channel message"
	saidSent      = "Send thread exiting, total amount of messages sent successfully: %d"
	saidReceived  = "Receive thread exiting, total amount of messages received successfully: %d"
)
