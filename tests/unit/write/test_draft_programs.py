"""`seglake init` and the logs of programs: each line as the program writes it, each time exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.config import load
from seglake.engine import LocalEngine
from seglake.write.draft.draft import draft
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.tiers import rest_but_today

BEGIN = datetime(2026, 11, 9, 0, 3, 7, 123_000, UTC)
TIMES = [BEGIN + timedelta(minutes=37 * n, seconds=n, milliseconds=7 * n) for n in range(200)]

# Directives of strftime, and the names of `parts` in braces: {n} is the number of the line.
PROGRAMS = {
    "log4j1": "%Y-%m-%d %H:%M:%S,{ms} INFO  [main] c.e.App - start {n}",
    "log4j-dd": "%d %b %Y %H:%M:%S,{ms} [main] INFO  c.e.App - {n}",
    "spring3": "%Y-%m-%dT%H:%M:%S.{ms}Z  INFO 1 --- [app] [nio-8080-exec-1] c.e.App : {n}",
    "spring2": "%Y-%m-%d %H:%M:%S.{ms}  INFO 1 --- [nio-8080-exec-1] c.e.App : {n}",
    "jul": "%b %d, %Y {half}:%M:%S %p com.example.App main\nINFO: started {n}",
    "jboss": "%Y-%m-%d %H:%M:%S,{ms} INFO  [org.jboss.as] (MSC service thread 1-1) {n}",
    "tomcat": "%d-%b-%Y %H:%M:%S.{ms} INFO [main] org.apache.catalina {n}",
    "weblogic": "####<%b {day}, %Y {half}:%M:%S %p UTC> <Notice> <Server> <{n}>",
    "websphere-liberty": "[{month}/{day}/%y, {hour}:%M:%S:{ms} UTC] 0000002a com.ibm.ws I {n}",
    "gc9": "[%Y-%m-%dT%H:%M:%S.{ms}+0000][info][gc] GC({n}) Pause Young",
    "gc8": "%Y-%m-%dT%H:%M:%S.{ms}+0000: 12.3{n}: [GC (Allocation Failure) 1K->2K]",
    "cassandra": "INFO  [main] %Y-%m-%d %H:%M:%S,{ms} CassandraDaemon.java:507 - {n}",
    "es": "[%Y-%m-%dT%H:%M:%S,{ms}][INFO ][o.e.n.Node          ] [node-1] {n}",
    "kafka": "[%Y-%m-%d %H:%M:%S,{ms}] INFO [Log partition=a-0] {n} (kafka.log.Log)",
    "zk": "%Y-%m-%d %H:%M:%S,{ms} [myid:1] - INFO  [main:QuorumPeer@1] - {n}",
    "spark": "%y/%m/%d %H:%M:%S INFO SparkContext: Running {n}",
    "hdfs": "%y%m%d %H%M%S 14{n} INFO dfs.DataNode: {n}",
    "nginx-err": "%Y/%m/%d %H:%M:%S [error] 12#12: *{n} open() failed",
    "apache-err": "[%a %b %d %H:%M:%S.%f %Y] [core:error] [pid 1:tid 2] [client 10.0.0.1:1] {n}",
    "apache-err22": "[%a %b %d %H:%M:%S %Y] [error] [client 10.0.0.1] {n}",
    "clf": '10.0.0.1 - - [%d/%b/%Y:%H:%M:%S +0000] "GET /{n} HTTP/1.1" 200 12',
    "vhost": 'www.a.b:443 10.0.0.1 - - [%d/%b/%Y:%H:%M:%S +0000] "GET /{n} HTTP/1.1" 200 1 "-"',
    "haproxy": "Nov {day:2} %H:%M:%S lb haproxy[1]: 10.0.0.1:{n} [%d/%b/%Y:%H:%M:%S.{ms}] fe b/s",
    "elb": 'http %Y-%m-%dT%H:%M:%S.%fZ app/lb/1 10.0.0.1:5{n} 10.0.0.2:80 200 "GET http://a/"',
    "s3": "79a5 bucket [%d/%b/%Y:%H:%M:%S +0000] 10.0.0.1 - 3E57 REST.GET.OBJECT k{n} 200 - 12",
    "cloudfront": "%Y-%m-%d\t%H:%M:%S\tFRA2-C1\t{n}\t10.0.0.1\tGET",
    "squid": "{epoch:.3f}    {n} 10.0.0.1 TCP_MISS/200 123 GET http://a/ - DIRECT/- text/html",
    "envoy": '[%Y-%m-%dT%H:%M:%S.{ms}Z] "GET /{n} HTTP/1.1" 200 - 0 12 3 - "10.0.0.1"',
    "traefik": '10.0.0.1 - - [%d/%b/%Y:%H:%M:%S +0000] "GET / HTTP/1.1" 200 1 "-" "-" {n} 1ms',
    "caddy-old": "%d/%b/%Y:%H:%M:%S +0000 [INFO] {n}",
    "iis": "%Y-%m-%d %H:%M:%S 10.0.0.1 GET /{n} - 443 - 10.0.0.2 curl - 200 0 0 12",
    "pg": "%Y-%m-%d %H:%M:%S.{ms} UTC [{n}] LOG:  checkpoint starting: time",
    "mysql8": "%Y-%m-%dT%H:%M:%S.%fZ {n} [Note] [MY-010000] [Server] x",
    "mysql55": "%y%m%d {hour:2}:%M:%S [Note] Event {n}",
    "mariadb": "%Y-%m-%d {hour:2}:%M:%S {n} [Note] InnoDB: x",
    "pg-summer": "%Y-%m-%d %H:%M:%S.{ms} UTC [{n}] LOG:  duration: 1 ms",
    "mongo3": "%Y-%m-%dT%H:%M:%S.{ms}+0000 I NETWORK  [conn{n}] end connection",
    "redis": "12:M %d %b %Y %H:%M:%S.{ms} * DB saved {n}",
    "oracle12": "%Y-%m-%dT%H:%M:%S.%f+00:00\nThread 1 advanced to log sequence {n}",
    "oracle11": "%a %b %d %H:%M:%S %Y\nThread 1 advanced to log sequence {n}",
    "mssql": "%Y-%m-%d %H:%M:%S.{ms} spid{n}s      Starting up",
    "couch": "[info] %Y-%m-%dT%H:%M:%S.%fZ couchdb@127.0.0.1 <0.{n}.0> -------- x",
    "rabbit": "%Y-%m-%d %H:%M:%S.%f+00:00 [info] <0.{n}.0> accepting",
    "syslog": "Nov {day:2} %H:%M:%S host app[{n}]: x",
    "rfc5424": "<34>1 %Y-%m-%dT%H:%M:%S.{ms}Z host app {n} ID47 - x",
    "journal-iso": "%Y-%m-%dT%H:%M:%S+0000 host app[{n}]: x",
    "journal-full": "%a %Y-%m-%d %H:%M:%S UTC host app[{n}]: x",
    "cisco-asa": "Nov %d %Y %H:%M:%S: %%ASA-6-302013: Built {n}",
    "cisco-ios": "*Nov {day:2} %H:%M:%S.{ms}: %%LINK-3-UPDOWN: Interface {n}",
    "cisco-nx": "%Y Nov {day:2} %H:%M:%S.{ms} sw1 %%ETHPORT-5-IF_UP: {n}",
    "juniper": "Nov {day:2} %H:%M:%S  r1 rpd[{n}]: x",
    "paloalto": "Nov {day:2} %H:%M:%S fw 1,%Y/%m/%d %H:%M:%S,0011,TRAFFIC,end,{n},10.0.0.1",
    "checkpoint": "time={seconds}|hostname=gw|product=Firewall|action=Accept|n={n}",
    "pfsense": "Nov {day:2} %H:%M:%S filterlog[1]: 5,,,100,em0,match,block,in,4,{n}",
    "iptables": "Nov {day:2} %H:%M:%S fw kernel: [12345.{n}] IN=eth0 OUT= SRC=10.0.0.1",
    "suricata": "%m/%d/%Y-%H:%M:%S.%f  [**] [1:1:1] x {n} [**]",
    "zeek": "{epoch:.3f}\tCabc{n}\t10.0.0.1\t5\t10.0.0.2\t80\ttcp",
    "bind": "%d-%b-%Y %H:%M:%S.{ms} queries: info: client 10.0.0.1#{n}: query: a IN A",
    "unbound": "[{seconds}] unbound[1:0] info: x {n}",
    "dnsmasq": "Nov {day:2} %H:%M:%S dnsmasq[1]: query[A] a from {n}",
    "openvpn": "%a %b %d %H:%M:%S %Y TLS: x {n}",
    "openvpn25": "%Y-%m-%d %H:%M:%S us=1{n} TLS: x",
    "strongswan": "Nov {day:2} %H:%M:%S 10[IKE] <{n}> x",
    "postfix": "Nov {day:2} %H:%M:%S mail postfix/smtp[{n}]: 4F: to=<a@b>",
    "exim": "%Y-%m-%d %H:%M:%S 1abc{n}-0001-AB <= a@b H=x",
    "dovecot": "Nov %d %H:%M:%S imap-login: Info: Login {n}",
    "dovecot2": "%Y-%m-%d %H:%M:%S imap-login: Info: Login {n}",
    "containerd": "%Y-%m-%dT%H:%M:%S.%f789Z stdout F msg {n}",
    "klog": "I%m%d %H:%M:%S.%f       1 main.go:{n}] x",
    "gitlab-ci": "%Y-%m-%dT%H:%M:%S.%fZ 00O step {n}",
    "gha": "%Y-%m-%dT%H:%M:%S.%f7Z ##[group]Run {n}",
    "jenkins": "%Y-%m-%d %H:%M:%S.{ms}+0000 [id={n}]\tINFO\thudson.X#y: z",
    "teamcity": "[%Y-%m-%d %H:%M:%S,{ms}]   INFO -  jetbrains.x {n}",
    "bamboo": "%d-%b-%Y %H:%M:%S\tBuild {n}",
    "rails": 'Started GET "/{n}" for 10.0.0.1 at %Y-%m-%d %H:%M:%S +0000',
    "ruby": "I, [%Y-%m-%dT%H:%M:%S.%f #{n}]  INFO -- : x",
    "gunicorn": "[%Y-%m-%d %H:%M:%S +0000] [{n}] [INFO] x",
    "django": '[%d/%b/%Y %H:%M:%S] "GET /{n} HTTP/1.1" 200 12',
    "uwsgi": "[pid: 1|app: 0|req: {n}/1] 10.0.0.1 () [%a %b {day:2} %H:%M:%S %Y] GET / => x",
    "pylog": "%Y-%m-%d %H:%M:%S,{ms} - app - INFO - x {n}",
    "celery": "[%Y-%m-%d %H:%M:%S,{ms}: INFO/MainProcess] Task {n}",
    "airflow": "[%Y-%m-%dT%H:%M:%S.{ms}+0000] {{x.py:{n}}} INFO - y",
    "loguru": "%Y-%m-%d %H:%M:%S.{ms} | INFO     | app:main:{n} - x",
    "php": "[%d-%b-%Y %H:%M:%S UTC] PHP Warning:  x in /a.php on line {n}",
    "php-fpm": "[%d-%b-%Y %H:%M:%S] NOTICE: x {n}",
    "monolog": "[%Y-%m-%dT%H:%M:%S.%f+00:00] app.INFO: x {n} [] []",
    "monolog1": "[%Y-%m-%d %H:%M:%S] app.INFO: x {n} [] []",
    "laravel": "[%Y-%m-%d %H:%M:%S] production.ERROR: x {n}",
    "drupal": "%a, %d %b %Y %H:%M:%S +0000 x {n}",
    "go": "%Y/%m/%d %H:%M:%S x {n}",
    "go-us": "%Y/%m/%d %H:%M:%S.%f main.go:{n}: x",
    "logrus": 'time="%Y-%m-%dT%H:%M:%SZ" level=info msg="x" n={n}',
    "zap": "%Y-%m-%dT%H:%M:%S.{ms}Z\tINFO\tapp/main.go:{n}\tx",
    "zap-epoch": "{epoch:.3f}\tINFO\tapp/main.go:{n}\tx",
    "rust": "[%Y-%m-%dT%H:%M:%SZ INFO  app] x {n}",
    "tracing": "%Y-%m-%dT%H:%M:%S.%fZ  INFO app: x {n}",
    "winston": "%Y-%m-%dT%H:%M:%S.{ms}Z info: x {n}",
    "pm2": "%Y-%m-%dT%H:%M:%S: PM2 log: x {n}",
    "npm": "{n} verbose stack x at %Y-%m-%dT%H:%M:%S.{ms}Z",
    "log4js": "[%Y-%m-%dT%H:%M:%S.{ms}] [INFO] default - {n}",
    "bunyan": "[%Y-%m-%dT%H:%M:%S.{ms}Z]  INFO: app/{n} on h: x",
    "serilog": "%Y-%m-%d %H:%M:%S.{ms} +00:00 [INF] x {n}",
    "nlog": "%Y-%m-%d %H:%M:%S.%f|INFO|App|x {n}",
    "log4net": "%Y-%m-%d %H:%M:%S,{ms} [1] INFO  App - {n}",
    "dotnet-de": "%d.%m.%Y %H:%M:%S x {n}",
    "dotnet-us": "{month}/{day}/%Y {half}:%M:%S %p x {n}",
    "dotnet-gb": "%d/%m/%Y %H:%M:%S x {n}",
    "powershell": "[%m/%d/%Y %H:%M:%S] x {n}",
    "cbs": "%Y-%m-%d %H:%M:%S, Info                  CBS    x {n}",
    "winupdate": "%Y/%m/%d %H:%M:%S.%f 1234  56    Agent           x {n}",
    "robocopy": "%Y/%m/%d %H:%M:%S ERROR {n} (0x5) x",
    "veeam": "[%d.%m.%Y %H:%M:%S] <01> Info     x {n}",
    "veeam12": "[%d.%m.%Y %H:%M:%S.{ms}]    <01>    Info (3)    x {n}",
    "rsync": "%Y/%m/%d %H:%M:%S [{n}] building file list",
    "borg": "%Y-%m-%d %H:%M:%S,{ms} [INFO] x {n}",
    "vsftpd": '%a %b {day:2} %H:%M:%S %Y [pid {n}] CONNECT: Client "10.0.0.1"',
    "xferlog": "%a %b {day:2} %H:%M:%S %Y 1 10.0.0.1 {n} /f b _ o r u ftp 0 * c",
    "proftpd": "%Y-%m-%d %H:%M:%S,{ms} host proftpd[{n}] localhost: x",
    "samba": "[%Y/%m/%d %H:%M:%S.%f,  1] ../source3/x.c:{n}(y)\n  message",
    "cups": "E [%d/%b/%Y:%H:%M:%S +0000] [Job {n}] x",
    "asterisk": "[%Y-%m-%d %H:%M:%S] NOTICE[{n}] chan_sip.c: x",
    "asterisk1": "[Nov {day:2} %H:%M:%S] NOTICE[{n}] chan_sip.c: x",
    "freeswitch": "%Y-%m-%d %H:%M:%S.%f [NOTICE] switch_channel.c:{n} x",
    "fail2ban": "%Y-%m-%d %H:%M:%S,{ms} fail2ban.actions        [{n}]: NOTICE  x",
    "dpkg": "%Y-%m-%d %H:%M:%S status installed a:amd64 {n}",
    "yum": "Nov %d %H:%M:%S Installed: a-{n}.x86_64",
    "pacman": "[%Y-%m-%dT%H:%M:%S+0000] [ALPM] installed a ({n})",
    "android": "%m-%d %H:%M:%S.{ms}  1234  12{n} I Tag     : x",
    "ios": "%Y-%m-%d %H:%M:%S.%f+0000 0x{n} Default x",
    "macos": "Nov {day:2} %H:%M:%S mac com.apple.x[{n}]: x",
    "macos-install": "%Y-%m-%d %H:%M:%S+00 mac x[{n}]: y",
    "vmware": "%Y-%m-%dT%H:%M:%S.{ms}Z info hostd[{n}] [Originator@6876] x",
    "vmware-log": "%Y-%m-%dT%H:%M:%S.{ms}Z| vmx| I005: x {n}",
    "openstack": "%Y-%m-%d %H:%M:%S.{ms} {n} INFO nova.x [req-1] y",
    "ceph": "%Y-%m-%dT%H:%M:%S.%f+0000 7f{n} 10 x",
    "ceph-old": "%Y-%m-%d %H:%M:%S.%f 7f{n} 10 x",
    "gluster": "[%Y-%m-%d %H:%M:%S.%f +0000] I [MSGID: {n}] x",
    "consul": "    %Y/%m/%d %H:%M:%S [INFO] agent: x {n}",
    "consul2": "%Y-%m-%dT%H:%M:%S.{ms}Z [INFO]  agent: x {n}",
    "prom": 'ts=%Y-%m-%dT%H:%M:%S.{ms}Z caller=main.go:{n} level=info msg="x"',
    "prom-old": 'level=info ts=%Y-%m-%dT%H:%M:%S.%fZ caller=main.go:{n} msg="x"',
    "grafana": 't=%Y-%m-%dT%H:%M:%S+0000 lvl=info msg="x" n={n}',
    "influx": "[I] %Y-%m-%dT%H:%M:%SZ x {n}",
    "heroku": "%Y-%m-%dT%H:%M:%S.%f+00:00 app[web.{n}]: x",
    "plc": "%d.%m.%Y %H:%M:%S.{ms} x {n}",
    "sap": "M %a %b {day:2} %H:%M:%S %Y\nM  x {n}",
    "sap-ms": "[Thr {n}] %a %b %d %H:%M:%S:{ms} %Y",
    "autosys": "[%m/%d/%Y %H:%M:%S]      CAUAJM_I_40245 EVENT: x {n}",
    "splunk": "%m-%d-%Y %H:%M:%S.{ms} +0000 INFO  x - {n}",
    "nagios": "[{seconds}] SERVICE ALERT: h;s;OK;HARD;{n};x",
    "puppet": "%Y-%m-%d %H:%M:%S +0000 Puppet (notice): x {n}",
    "chef": "[%Y-%m-%dT%H:%M:%S+00:00] INFO: x {n}",
    "ansible": "%Y-%m-%d %H:%M:%S,{ms} p={n} u=root n=ansible | x",
    "salt": "%Y-%m-%d %H:%M:%S,{ms} [salt.x    :{n}  ][INFO    ][1] y",
    "terraform": "%Y-%m-%dT%H:%M:%S.{ms}Z [INFO]  Terraform version: {n}",
    "cron": "Nov {day:2} %H:%M:%S h CRON[{n}]: (root) CMD (x)",
    "clamav": "%a %b {day:2} %H:%M:%S %Y -> x {n}",
    "snmptrapd": "%Y-%m-%d %H:%M:%S h [UDP: [10.0.0.1]:{n}->[10.0.0.2]:162]: x",
    "radius": "%a %b {day:2} %H:%M:%S %Y : Auth: ({n}) Login OK: [a]",
    "tacacs": "Nov {day:2} %H:%M:%S 10.0.0.1 u tty1 10.0.0.2 start task_id={n}",
    "lotus": "%m/%d/%Y %I:%M:%S %p  x {n}",
    "domino": "[0A1B:0002-1F40] %d.%m.%Y %H:%M:%S   x {n}",
    "hmailserver": '"SMTPD"\t1{n}\t1\t"%Y-%m-%d %H:%M:%S.{ms}"\t"10.0.0.1"\t"x"',
    "exchange": "%Y-%m-%dT%H:%M:%S.{ms}Z,10.0.0.1,h,{n},x,,y",
    "fluentd": "%Y-%m-%d %H:%M:%S +0000 [info]: #0 x {n}",
    "fluentbit": "[%Y/%m/%d %H:%M:%S] [ info] [x] {n}",
    "telegraf": "%Y-%m-%dT%H:%M:%SZ I! x {n}",
    "vector": "%Y-%m-%dT%H:%M:%S.%fZ  INFO vector::x: y {n}",
    "docker": 'time="%Y-%m-%dT%H:%M:%S.%fZ" level=info msg="x {n}"',
    "etcd2": "%Y-%m-%d %H:%M:%S.%f I | etcdserver: x {n}",
    "tor": "Nov %d %H:%M:%S.000 [notice] x {n}",
    "bitcoin": "%Y-%m-%dT%H:%M:%SZ UpdateTip: new best={n}",
}


def written(line: str) -> str:
    """A file of such lines, over five days, one of which has one digit."""
    return "".join(f"{_line(line, n, time)}\n" for n, time in enumerate(TIMES))


def _line(line: str, n: int, time: datetime) -> str:
    parts: dict[str, Any] = {
        "n": n, "ms": f"{time.microsecond // 1000:03}", "epoch": time.timestamp(), "day": time.day,
        "month": time.month, "seconds": int(time.timestamp()), "hour": time.hour,
        "half": (time.hour - 1) % 12 + 1,
    }  # fmt: skip
    return time.strftime(line).format(**parts)


@pytest.mark.parametrize("program", rest_but_today(PROGRAMS, 5))
def test_each_line_is_a_record_at_its_time(tmp_path: Path, program: str) -> None:
    line, log = PROGRAMS[program], tmp_path / "in" / "app.log"
    log.parent.mkdir()
    log.write_text(written(line))
    made = draft([str(log.parent)], root=str(tmp_path / "lake"))
    (tmp_path / "p.toml").write_text(made.toml)
    report = ingest_files(LocalEngine(), load(tmp_path / "p.toml"), DeclaredRun("1"))
    assert (report.records, report.quarantined) == (len(TIMES), 0)
    records = seglake.open(str(tmp_path / "lake")).topic(made.topic).read_range(0, 5 * 10**12)
    has_parts = any(part in line for part in ("%f", "{ms}", ".3f"))
    right = TIMES if has_parts else [time.replace(microsecond=0) for time in TIMES]
    found: list[Any] = records.read_all()["timestamp"].to_pylist()
    assert sorted(found) == right
