"""A bare blocking echo in a process of its own."""

import sys

import zmq

socket = zmq.Context().socket(zmq.ROUTER)
socket.bind(sys.argv[1])
while True:
    socket.send_multipart(socket.recv_multipart())
