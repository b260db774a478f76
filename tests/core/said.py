"""What real programs say when something outside is broken, and what must be there again.

What ssh, scp, sftp, rsync, git, curl 7.88, wget, urllib, requests, httpx, aiohttp, botocore, psql, MariaDB's mysql, PyMySQL and kubectl
say was taken from them, against servers that refuse, hang up, keep silent or answer 503; only hosts, ports and times are others. What
file systems, batch systems, licence managers and MySQL's own client say is from their documentation and from people's reports.
"""

SAID = [
    # ssh, and who uses it
    (
        "ssh: connect to host login.lab port 22: Connection refused\nscp: Connection closed",
        "ssh:login.lab:22",
    ),
    ("ssh: connect to host login.lab port 2222: Connection timed out", "ssh:login.lab:2222"),
    (
        "ssh: connect to host login.lab port 22: Connection refused\n"
        "rsync: connection unexpectedly closed (0 bytes received so far) [sender]\n"
        "rsync error: unexplained error (code 255) at io.c(285) [sender=3.5.0]",
        "ssh:login.lab:22",
    ),
    ("ada@login.lab: Permission denied (publickey,password).", "ssh-auth:ada@login.lab"),
    ("ssh: Could not resolve hostname login.lab: Name or service not known", "dns:login.lab"),
    (
        "kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.0.0.7 port 22",
        "ssh:10.0.0.7:22",
    ),
    (
        "kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by 10.0.0.7 port 22\r\n"
        "scp: Connection closed\r",
        "ssh:10.0.0.7:22",
    ),
    (
        "Connection closed by 10.0.0.7 port 22\nConnection closed.  \nConnection closed",
        "ssh:10.0.0.7:22",
    ),
    (
        "Connection timed out during banner exchange\nConnection to 10.0.0.7 port 22 timed out",
        "ssh:10.0.0.7:22",
    ),
    ("Connection reset by UNKNOWN port -1\nfatal: Could not read from remote repository.", "ssh:HOST"),
    ("ssh_exchange_identification: Connection closed by remote host", "ssh:HOST"),
    (
        "rsync: [Receiver] failed to connect to store.lab (10.0.0.7): Connection refused (111)\n"
        "rsync error: error in socket IO (code 10) at clientserver.c(165) [Receiver=3.5.0]",
        "tcp:store.lab:873",
    ),
    # names
    ("curl: (6) Could not resolve host: store.lab", "dns:store.lab"),
    ("curl: (6) Could not resolve host: my_store", "dns:my_store"),
    (
        "fatal: unable to access 'http://git.lab/x/': Could not resolve host: git.lab",
        "dns:git.lab",
    ),
    (
        "--2026-11-17 02:30:42--  http://store.lab/\n"
        "Resolving store.lab (store.lab)... failed: Name or service not known.\n"
        "wget: unable to resolve host address ‘store.lab’",
        "dns:store.lab",
    ),
    (
        'psql: error: could not translate host name "db.lab" to address: Name or service not known',
        "dns:db.lab",
    ),
    ("ERROR 2005 (HY000): Unknown server host 'db.lab' (-2)", "dns:db.lab"),
    (
        "Unable to connect to the server: dial tcp: lookup k8s.lab on 10.0.0.2:53: no such host",
        "dns:k8s.lab",
    ),
    # HTTP
    (
        "curl: (7) Failed to connect to store.lab port 443 after 2 ms: Couldn't connect to server",
        "tcp:store.lab:443",
    ),
    (
        "curl: (28) Failed to connect to store.lab port 81 after 1001 ms: Timeout was reached",
        "tcp:store.lab:81",
    ),
    (
        "curl: (35) OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to store.lab:8443 ",
        "https://store.lab:8443/<500",
    ),
    ("curl: (22) The requested URL returned error: 503", "https://HOST/<500"),
    ("curl: (52) Empty reply from server", "https://HOST/<500"),
    ("curl: (56) Recv failure: Connection reset by peer", "https://HOST/<500"),
    (
        "curl: (28) Operation timed out after 1000 milliseconds with 0 bytes received",
        "https://HOST/<500",
    ),
    ("curl: (18) transfer closed with 97 bytes remaining to read", "https://HOST/<500"),
    (
        "curl: (22) The requested URL returned error: 503\n503 http://store.lab:8080/a/b?token=hunter2",
        "http://store.lab:8080/a/b<500",
    ),
    (
        "+ curl -sSO http://fine.lab/a\n+ curl -f 'https://store.lab/a?token=hunter2' -o a\n"
        "  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current\n"
        "                                 Dload  Upload   Total   Spent    Left  Speed\n"
        "\r  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0\r  0     5    0     0\n"
        "curl: (22) The requested URL returned error: 503",
        "https://store.lab/a<500",
    ),
    ("+ curl -sS http://store.lab\ncurl: (52) Empty reply from server", "http://store.lab/<500"),
    (
        "--2026-11-17 02:30:40--  http://ada:*password*@store.lab:8080/a?token=hunter2\n"
        "Connecting to store.lab:8080... connected.\n"
        "HTTP request sent, awaiting response... 503 Service Unavailable\n"
        "2026-11-17 02:30:40 ERROR 503: Service Unavailable.",
        "http://store.lab:8080/a<500",
    ),
    (
        "--2026-11-17 02:30:41--  (try: 2)  https://store.lab/a\n"
        "Connecting to store.lab:443... connected.\n"
        "HTTP request sent, awaiting response... No data received.\nGiving up.",
        "https://store.lab/a<500",
    ),
    (
        "--2026-11-17 02:30:41--  http://store.lab:8080/\n"
        "Connecting to store.lab:8080... failed: Connection refused.",
        "http://store.lab:8080/<500",
    ),
    (
        "http://ada:*password*@store.lab:8080/a?token=hunter2:\n2026-11-17 02:30:42 ERROR 503: Service Unavailable.",
        "http://store.lab:8080/a<500",
    ),
    (
        "http://store.lab/a:\n2026-11-17 02:30:41 ERROR 429: Too Many Requests.",
        "http://store.lab/a<500",
    ),
    (
        "fatal: unable to access 'https://git.lab/x.git/': The requested URL returned error: 503",
        "https://git.lab/x.git/<500",
    ),
    (
        "fatal: unable to access 'http://git.lab:8080/x/': Failed to connect to git.lab port 8080 after 0 ms: "
        "Couldn't connect to server",
        "http://git.lab:8080/x/<500",
    ),
    ("fatal: unable to access 'http://git.lab/x/': Empty reply from server", "http://git.lab/x/<500"),
    ("urllib.error.HTTPError: HTTP Error 503: Service Unavailable", "https://HOST/<500"),
    ("urllib.error.URLError: <urlopen error [Errno 111] Connection refused>", "https://HOST/<500"),
    ("http.client.RemoteDisconnected: Remote end closed connection without response", "https://HOST/<500"),
    (
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://store.lab:8443/a/b?c=1",
        "https://store.lab:8443/a/b<500",
    ),
    (
        "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: http://store.lab/a",
        "http://store.lab/a<500",
    ),
    (
        "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        "https://HOST/<500",
    ),
    (
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='store.lab', port=8080): Max retries exceeded with url: / "
        "(Caused by NewConnectionError(\"HTTPConnection(host='store.lab', port=8080): Failed to establish a new connection: "
        '[Errno 111] Connection refused"))',
        "tcp:store.lab:8080",
    ),
    (
        "requests.exceptions.ConnectTimeout: HTTPConnectionPool(host='store.lab', port=80): Max retries exceeded with url: / "
        "(Caused by ConnectTimeoutError(<HTTPConnection(host='store.lab', port=80) at 0x7f3de399bf10>, 'Connection to store.lab "
        "timed out. (connect timeout=1)'))",
        "tcp:store.lab:80",
    ),
    (
        "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='store.lab', port=80): Read timed out. (read timeout=1)",
        "tcp:store.lab:80",
    ),
    (
        "requests.exceptions.RetryError: HTTPSConnectionPool(host='store.lab', port=443): Max retries exceeded with url: /a?c=1 "
        "(Caused by ResponseError('too many 503 error responses'))",
        "https://store.lab:443/a<500",
    ),
    (
        "httpx.HTTPStatusError: Server error '503 Service Unavailable' for url 'http://store.lab:8080/a?token=hunter2'\n"
        "For more information check: https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/503",
        "http://store.lab:8080/a<500",
    ),
    ("httpx.ConnectError: [Errno 111] Connection refused", "https://HOST/<500"),
    (
        "httpx.RemoteProtocolError: Server disconnected without sending a response.",
        "https://HOST/<500",
    ),
    (
        "aiohttp.client_exceptions.ClientResponseError: 503, message='Service Unavailable', url='http://store.lab/a?token=hunter2'",
        "http://store.lab/a<500",
    ),
    (
        "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host store.lab:8080 ssl:default "
        "[Connect call failed ('10.0.0.7', 8080)]",
        "tcp:store.lab:8080",
    ),
    ("aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected", "https://HOST/<500"),
    (
        'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "http://s3.lab:9000/b?encoding-type=url"',
        "http://s3.lab:9000/b<500",
    ),
    (
        "botocore.exceptions.ConnectionClosedError: Connection was closed before we received a valid response from endpoint URL: "
        '"https://s3.lab/b?encoding-type=url".',
        "https://s3.lab/b<500",
    ),
    (
        "botocore.exceptions.ClientError: An error occurred (503) when calling the ListObjects operation "
        "(reached max retries: 0): Service Unavailable",
        "https://HOST/<500",
    ),
    # databases
    (
        'psql: error: connection to server at "db.lab" (10.0.0.7), port 5432 failed: Connection refused\n'
        "\tIs the server running on that host and accepting TCP/IP connections?",
        "database:postgresql://db.lab:5432/",
    ),
    (
        "ERROR 2003 (HY000): Can't connect to MySQL server on 'db.lab:3307' (111)",
        "database:mysql://db.lab:3307",
    ),
    ("ERROR 2002 (HY000): Can't connect to server on 'db.lab' (115)", "database:mysql://db.lab"),
    (
        "pymysql.err.OperationalError: (2003, \"Can't connect to MySQL server on 'db.lab' ([Errno 111] Connection refused)\")",
        "database:mysql://db.lab",
    ),
    (
        "ERROR 2002 (HY000): Can't connect to local server through socket '/run/mysqld/mysqld.sock' (2)",
        "file:/run/mysqld/mysqld.sock",
    ),
    (
        "ERROR 2013 (HY000): Lost connection to server at 'handshake: reading initial communication packet', system error: 110",
        "database:mysql://HOST",
    ),
    ("sqlite3.OperationalError: database is locked", "command:./is-unlocked.sh"),
    # file systems
    ("cp: error writing '/scratch/ada/x.dat': No space left on device", "disk:/scratch/ada>=1G"),
    ("OSError: [Errno 28] No space left on device: '/scratch/ada/x.dat'", "disk:/scratch/ada>=1G"),
    ("OSError: [Errno 28] No space left on device", "disk:/tmp>=1G"),
    ("cp: failed to close 'x': Disk quota exceeded", "command:./quota-ok.sh"),
    ("ls: cannot access '/data/run7': Stale file handle", "file:/data/run7"),
    # batch systems
    (
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "command:sinfo",
    ),
    (
        "slurm_load_partitions: Unable to contact slurm controller (connect failure)",
        "command:sinfo",
    ),
    (
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)",
        "command:./may-submit.sh",
    ),
    ("qsub: cannot connect to server pbs.lab (errno=111)", "command:qstat -B"),
    ("ERROR: Failed to connect to local queue manager", "command:condor_q"),
    (
        "error: commlib error: got select error (Connection refused)\n"
        'Unable to run job: unable to send message to qmaster using port 6444 on host "sge.lab": got send error.\nExiting.',
        "tcp:sge.lab:6444",
    ),
    (
        "error: commlib error: can't connect to service (Connection refused)\n"
        'unable to contact qmaster using port 701 on host "sge.lab"',
        "tcp:sge.lab:701",
    ),
    ("Failed in an LSF library call: LIM is down; try later. Job not submitted.", "command:bqueues"),
    ("LSF is down. Please wait ...", "command:bqueues"),
    (
        'E1117 02:31:25.313931   12384 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group list: Get '
        '\\"http://k8s.lab:6443/api?timeout=32s\\": dial tcp 10.0.0.7:6443: connect: connection refused"\n'
        "The connection to the server k8s.lab:6443 was refused - did you specify the right host or port?",
        "tcp:k8s.lab:6443",
    ),
    ("Unable to connect to the server: dial tcp 10.0.0.7:443: i/o timeout", "tcp:10.0.0.7:443"),
    (
        "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
        "command:kubectl get --raw=/readyz",
    ),
    (
        "Unable to connect to the server: net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
        "command:kubectl get --raw=/readyz",
    ),
    # licences
    (
        "License checkout failed.\nLicense path:  27000@licence.lab:\nFLEXnet Licensing error:-15,578.",
        "tcp:licence.lab:27000",
    ),
]
