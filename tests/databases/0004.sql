BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('v3.2.0.a');
CREATE TABLE autotune_about (
	"key" VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_autotune_about PRIMARY KEY ("key")
);
INSERT INTO "autotune_about" VALUES('autotune','0.1.0');
INSERT INTO "autotune_about" VALUES('optuna','5.0.0 v3.2.0.a');
CREATE TABLE autotune_alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT autotune_alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "autotune_alembic_version" VALUES('0004');
CREATE TABLE autotune_bundle (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	path TEXT NOT NULL, 
	written_at DOUBLE NOT NULL, 
	CONSTRAINT pk_autotune_bundle PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_bundle_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id)
);
INSERT INTO "autotune_bundle" VALUES(1,1,'/home/user/project/autotune-ended',1.79542611236973953243e+09);
CREATE TABLE autotune_environment (
	id INTEGER NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	environment TEXT NOT NULL, 
	CONSTRAINT pk_autotune_environment PRIMARY KEY (id), 
	CONSTRAINT uq_autotune_environment_sha256 UNIQUE (sha256)
);
INSERT INTO "autotune_environment" VALUES(1,'4f059dcf5e16b8a504eb34ca50262002aec2999b4c459a88752c42ba3ccc1580','{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}}');
CREATE TABLE autotune_final (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	owner_id INTEGER, 
	ended BOOLEAN NOT NULL, 
	CONSTRAINT pk_autotune_final PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_final_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT fk_autotune_final_owner_id_autotune_owner FOREIGN KEY(owner_id) REFERENCES autotune_owner (id), 
	CONSTRAINT uq_autotune_final_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "autotune_final" VALUES(1,1,1,1,1);
CREATE TABLE autotune_gate (
	id INTEGER NOT NULL, 
	held_at DOUBLE NOT NULL, 
	script_name TEXT NOT NULL, 
	script_sha256 VARCHAR(64) NOT NULL, 
	configuration TEXT NOT NULL, 
	answer VARCHAR(16) NOT NULL, 
	samples_per_s DOUBLE, 
	speed_change DOUBLE, 
	peak_bytes BIGINT, 
	memory_change DOUBLE, 
	gate TEXT NOT NULL, 
	CONSTRAINT pk_autotune_gate PRIMARY KEY (id)
);
INSERT INTO "autotune_gate" VALUES(1,1.79542617023035693162e+09,'train.py','f0b8108abea4c0ed8bf946cec5a38d2c60c0af3d36139bf26a2d4a302710e1cd','["eager",[],0,8]','not_comparable',8.75740588262705205082e+03,7.23985766848759482172e-01,326207488,9.99680953992359233595e-01,'{"answer":"not_comparable","sentences":["Not told: speed varies too much to tell.","Speed 8,757 samples/s, 11,751 before; 0.724x, between 0.192x and 2.728x; 5 % slower is allowed.","Peak 311 MiB, 311 MiB before; 1.000x, between 0.992x and 1.007x; 3 % more is allowed.","Measured in 4 rounds."],"reference":"stored","rounds":4,"gauges":[{"name":"speed","before":11751.364656486341,"now":8757.405882627052,"change":0.7239857668487595,"low":0.19210952420788585,"high":2.728419596898208,"allowed":0.05,"found":"open"},{"name":"memory","before":326311936,"now":326207488.0,"change":0.9996809539923592,"low":0.9924183913645873,"high":1.0069966643815804,"allowed":0.03,"found":"within"}],"differs":[],"environment":{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}},"reading":{"samples_per_s":[9539.97638211419,4146.899777232182,10540.219179560316,7974.8353831399145],"peak_bytes":[326217728,326205440,326209536,326160384]},"script_reading":null,"graph":null}');
CREATE TABLE autotune_owner (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	machine VARCHAR(128) NOT NULL, 
	hostname VARCHAR(255) NOT NULL, 
	process INTEGER NOT NULL, 
	process_start BIGINT NOT NULL, 
	registered_at DOUBLE NOT NULL, 
	heartbeat_at DOUBLE NOT NULL, 
	CONSTRAINT pk_autotune_owner PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_owner_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT uq_autotune_owner_process UNIQUE (study_id, machine, hostname, process, process_start)
);
INSERT INTO "autotune_owner" VALUES(1,1,'00000000-0000-0000-0000-000000000000 pid:[1]','workstation',5957,3421628,1.79542602913978219031e+09,1.79542610926670718196e+09);
INSERT INTO "autotune_owner" VALUES(2,2,'00000000-0000-0000-0000-000000000000 pid:[1]','workstation',7785,3432709,1.79542615146019053458e+09,1.79542616151707220073e+09);
CREATE TABLE autotune_repeat (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	round INTEGER NOT NULL, 
	configuration TEXT NOT NULL, 
	run_directory TEXT NOT NULL, 
	finished_at DOUBLE NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	samples_per_s DOUBLE, 
	peak_bytes BIGINT, 
	outcome TEXT NOT NULL, 
	environment_id INTEGER, final INTEGER DEFAULT '1' NOT NULL, 
	CONSTRAINT pk_autotune_repeat PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_repeat_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT fk_autotune_repeat_environment_id_autotune_environment FOREIGN KEY(environment_id) REFERENCES autotune_environment (id)
);
INSERT INTO "autotune_repeat" VALUES(1,1,0,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-1',1.79542605166351890567e+09,'measured',7.7980310174662554345e+03,326254592,'{"kind":"measured","measurement":{"step_times_s":[0.0012534319976111874,0.017087002997868694,0.0009031619993038476,0.005769123999925796,0.013573861004260834,0.0009080999952857383,0.0005867920044693165,0.0005877430012333207,0.0006347039961838163,0.013551948999520391,0.000822501999209635,0.000614303004113026,0.0006039579966454767,0.0005396220003603958,0.013329178000276443,0.0011137050023535267,0.0006810920021962374,0.0006212629959918559,0.015501656998822,0.005320096002833452,0.001154035002400633,0.008150541994837113,0.007013613001618069,0.0011282870036666282,0.0006362049971357919,0.0006227260018931702,0.0005570479988818988,0.013484609000443015,0.0008020419991225936,0.0006859290006104857,0.0007569149966002442,0.016730002003896516,0.001051432998792734,0.0006587589959963225,0.0005431870013126172,0.0005510890041477978,0.0006563950009876862,0.013544598994485568,0.0008599170032539405,0.006790972001908813,0.0010003669958678074,0.01057112000125926,0.0013007529996684752,0.0006453090027207509,0.0005662609983119182,0.0006212230000528507,0.011445299001934472,0.005142060996149667,0.0015068799984874204,0.0007549820002168417,0.0006669409995083697,0.009810319003008772,0.006702008999127429,0.011582131999603007,0.006093595999118406,0.011250018003920559,0.0014684630004921928,0.0006915169942658395,0.0006833959996583872,0.005309901003784034],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326254592},"warmup_steps":6,"warmup_s":0.01824036700418219,"batch_size":8,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.7522345441627399,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 4.09x the median (evaluation or logging inside?)"]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(2,1,0,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-1-2',1.79542606239168214799e+09,'measured',2.66552493006980221242e+04,326365184,'{"kind":"measured","measurement":{"step_times_s":[0.0161212870007148,0.00485669699992286,0.000740600997232832,0.0005865019993507303,0.0005712490019504912,0.0005721299967262894,0.0005602419987553731,0.016784914005256724,0.0014723779968335293,0.0005911390035180375,0.0005569169952650554,0.0005562869991990738,0.0005560260033234954,0.004780253999342676,0.0005812640010844916,0.0005656200009980239,0.0005531829956453294,0.000551199002075009,0.0005503180000232533,0.009027264997712336,0.0009774420032044873,0.0005858209988218732,0.0005600720032816753,0.0005512189964065328,0.0005645290002576075,0.013286405002872925,0.0007171859979280271,0.0005902769989916123,0.0034716590016614646,0.0005775079989689402,0.0005823460014653392,0.0005906369988224469,0.014050480996957049,0.0007535900003858842,0.0005844580009579659,0.0005608640058198944,0.007172317993536126,0.006425930005207192,0.0009592549977242015,0.0006102569968788885,0.005089694001071621,0.0009126560034928843,0.0005828060020576231,0.0005557759941439144,0.0005652100007864647,0.0005514700023923069,0.0005451800025184639,0.01120992899814155,0.001213593001011759,0.005474715995660517,0.0050784870036295615,0.0009591049965820275,0.004784721000760328,0.0007853770002839155,0.0006093749980209395,0.0005599430005531758,0.0005497570018633269,0.009576331001881044,0.0009321449979324825,0.0006466510021709837],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326365184},"warmup_steps":6,"warmup_s":0.02017240800341824,"batch_size":16,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.7103299040770031,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 4.55x the median (evaluation or logging inside?)"]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(3,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-2',1.79542607414203524585e+09,'measured',2.30020888066110637732e+04,326344704,'{"kind":"measured","measurement":{"step_times_s":[0.011322907004796434,0.0007644559955224395,0.00480490000336431,0.0006059809966245666,0.0005676530054188333,0.007037277995550539,0.004792252002516761,0.0007504050008719787,0.0005839479999849573,0.000571118995139841,0.006698364006297197,0.0006544319985550828,0.0005811640003230423,0.004762917997140903,0.0007504649984184653,0.0005780290011898614,0.010744257000624202,0.0006886440023663454,0.0006211329964571632,0.003101479000179097,0.0006018940039211884,0.0005641190000460483,0.0005462209956021979,0.0005637380018015392,0.011316837997583207,0.005950833001406863,0.0010007270029745996,0.0006068820002838038,0.0005557559998123907,0.003956118998758029,0.0005888250016141683,0.0005547249966184609,0.004816396998648997,0.0007123790055629797,0.0006237769994186237,0.0005788399939774536,0.0005452100012917072,0.013276410005346406,0.0006802809948567301,0.0005676340006175451,0.0005474330027936958,0.0005533219955395907,0.012097068000002764,0.0005952540013822727,0.009204579000652302,0.0007025340019026771,0.0005731019991799258,0.0006692739989375696,0.000568404997466132,0.0005899570023757406,0.015221800000290386,0.0009288510045735165,0.0064176169980783015,0.0007135900013963692,0.005841922000399791,0.0006282139947870746,0.0033953950041905046,0.004605103997164406,0.006405799002095591,0.0007082730007823557],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326344704},"warmup_steps":7,"warmup_s":0.02625228300166782,"batch_size":16,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.7093400017578543,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 4.28x the median (evaluation or logging inside?)"]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(4,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-2-2',1795426086.72341,'measured',1.25926841273294612617e+04,326340608,'{"kind":"measured","measurement":{"step_times_s":[0.01723319000302581,0.0009231020012521185,0.0006405219974112697,0.005423869995865971,0.0008405990010942332,0.0006750329994247295,0.0007522180021624081,0.009789397998247296,0.002158907998818904,0.0007494040037272498,0.000562376000743825,0.008893737001926638,0.0007913759982329793,0.000579920997552108,0.0006300570021267049,0.0005466419970616698,0.011848228001326788,0.008142869999574032,0.0007812410040060058,0.000606301000516396,0.0005348049962776713,0.0005286060040816665,0.0005264719948172569,0.0005170790027477778,0.0005119900015415624,0.0005678839952452108,0.01730550800130004,0.0009764110000105575,0.0005601419979939237,0.0005302880017552525,0.008821759998681955,0.000892116004251875,0.0005531319984584115,0.0005240989994490519,0.0005202230022405274,0.0005241190010565333,0.0005136229956406169,0.0005082850038888864,0.01483044999622507,0.0005994599996483885,0.009459228000196163,0.0009856640026555397,0.0006687439963570796,0.0005525209999177605,0.0005326720056473278,0.012827191996620968,0.0011639799995464273,0.0006148340034997091,0.0005462509943754412,0.000540443004865665,0.0005199529987294227,0.014445567001530435,0.0007291939982678741,0.009708657998999115,0.0007273209994309582,0.0005628459985018708,0.0027094370016129687,0.0005612840031972155,0.0005313189976732247,0.0005497169986483641],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326340608},"warmup_steps":5,"warmup_s":0.01528433399653295,"batch_size":8,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.6988727455782934,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 4.74x the median (evaluation or logging inside?)"]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(5,1,2,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-3',1.79542609927145862579e+09,'measured',1.74641697680422221315e+04,326270976,'{"kind":"measured","measurement":{"step_times_s":[0.01038192900159629,0.00497354099934455,0.0008994870004244149,0.00976355899911141,0.0007227440000860952,0.0005716500018024817,0.0005751240023528226,0.011749039993446786,0.000760300004913006,0.012467367996578105,0.00119052900117822,0.0006612229990423657,0.00262752400158206,0.003998993001005147,0.0008033839985728264,0.0005878340016352013,0.0005846979984198697,0.0006088349982746877,0.0005473040000651963,0.011081588003435172,0.0009741469984874129,0.009479237000050489,0.010406585002783686,0.0008828919962979853,0.0005986699979985133,0.0005727410025428981,0.0005615749978460371,0.016940735004027374,0.0006871110017527826,0.011041848993045278,0.0009328360029030591,0.011743401999410708,0.0013858800011803396,0.0008326070019393228,0.000772929000959266,0.0005907269951421767,0.0007552230017608963,0.011320803001581226,0.00969778199942084,0.0012724109983537346,0.000763925003411714,0.0007808509981259704,0.00950799899874255,0.0009794159996090457,0.02533816399954958,0.001558246003696695,0.0007493339944630861,0.000662955004372634,0.016267835002508946,0.009056077993591316,0.0053451330022653565,0.0007854979994590394,0.0007027239989838563,0.0006767860031686723,0.010673552002117503,0.0013016939992667176,0.0006104869971750304,0.009643370998674072,0.0006218339985935017,0.0005663920019287616],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326270976},"warmup_steps":8,"warmup_s":0.04741031600133283,"batch_size":16,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.7581522500789409,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["steps are uneven: the mean step takes 4.71x the median (evaluation or logging inside?)"]}}',1,1);
INSERT INTO "autotune_repeat" VALUES(6,1,2,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0}','/home/user/project/.autotune/runs/ended/final-1-round-3-2',1.79542611157042932513e+09,'measured',1.17513646564863411187e+04,326311936,'{"kind":"measured","measurement":{"step_times_s":[0.0010125249973498285,0.009845872002188116,0.0006987079977989197,0.000687592000758741,0.0006160650009405799,0.005964534000668209,0.000969221000559628,0.0025623569963499904,0.0006839470006525517,0.010113970005477313,0.0007424430004903115,0.0030996369969216175,0.0005788100024801679,0.004812450999452267,0.0007522179948864505,0.0005612640015897341,0.0005552060029003769,0.0005403629984357394,0.0005259009994915687,0.011733297003956977,0.0008043749985517934,0.0006561049958691001,0.0005488759998115711,0.0005312889988999814,0.0005268130043987185,0.000521084999490995,0.009750038996571675,0.0008196880007744767,0.0005630070008919574,0.0006060099985916167,0.0005626060010399669,0.0005300179982441477,0.01267424500110792,0.0013156950008124113,0.0006982679988141172,0.0005559160053962842,0.008980184997199103,0.0007668100006412715,0.0007380769966403022,0.0005714990038541146,0.0005419049994088709,0.0005317100003594533,0.0064764549970277585,0.0009187050018226728,0.0005774180026492104,0.010974258999340236,0.0009449239951209165,0.0005760060012107715,0.004868756004725583,0.0006775969959562644,0.0005638570000883192,0.0005566980034927838,0.011224379995837808,0.0006187700055306777,0.0005484349967446178,0.0005392509992816485,0.0005353960004867986,0.0005275340008665808,0.009404215001268312,0.0006266609998419881],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326311936},"warmup_steps":12,"warmup_s":0.05320673000096576,"batch_size":8,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.7080039374966007,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["step times had not settled after 12 warm-up steps","steps are uneven: the mean step takes 3.70x the median (evaluation or logging inside?)"]}}',1,1);
CREATE TABLE autotune_study (
	id INTEGER NOT NULL, 
	optuna_study_id INTEGER NOT NULL, 
	name VARCHAR(512) NOT NULL, 
	spec TEXT NOT NULL, 
	facts TEXT, 
	verdict TEXT, 
	created_at DOUBLE NOT NULL, 
	autotune VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_autotune_study PRIMARY KEY (id), 
	CONSTRAINT uq_autotune_study_name UNIQUE (name)
);
INSERT INTO "autotune_study" VALUES(1,1,'ended','{"script":"/home/user/project/train.py","arguments":[],"working_directory":"/home/user/project","python":"/usr/bin/python3","module":"","engine":"aot","memory_limit_bytes":null,"objective":{"goal":"throughput","max_slowdown":0.03,"target_memory_bytes":null},"time_budget_s":150.0,"max_trials":2,"own_batch_size":null,"batch_sizes":[8,16],"devices":[],"sampler":"model","seed":0,"start_timeout_s":300.0,"trial_timeout_s":120.0,"finalist_rounds":3,"plans_first":[],"choices":[],"keep_global_batch":false,"measuring":{"min_warmup_steps":2,"max_warmup_steps":12,"min_steps":5,"max_steps":60,"interval_ratio":0.01,"rough_interval_ratio":0.03,"fine_steps":24,"min_measure_s":0.5,"max_measure_s":10.0,"rate_to_beat":null},"leaves_files":false}','{"baseline":{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0},"batch_size":8,"batch_control":{"how":"loaders","loaders":[0],"sites":["114c2327ef28a145"],"reason":""},"clusters":[{"cluster_id":"addmm+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":0.00011525199806783348,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":"runs costly operators again"},{"cluster_id":"gelu+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":8.513699867762625e-05,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":""}],"dimensions":{"batch":8},"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":4096},"roots":[{"name":"Sequential","num_parameters":1153,"num_trainable":1153,"num_graphs":1,"applied_by":"aot","wrapped_by":[]}],"optimizers":[{"name":"SGD","settings":{"lr":"0.01","momentum":"0","dampening":"0","weight_decay":"0","nesterov":"False","maximize":"False","foreach":"None","differentiable":"False","fused":"None"}}],"precision":{"parameters":"float32","autocast":null,"grad_scaler":false},"environment":{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}},"calls_per_step":1.0,"script_sha256":"f0b8108abea4c0ed8bf946cec5a38d2c60c0af3d36139bf26a2d4a302710e1cd","memory_matrix":[{"phase":"pre_forward","step":66,"allocated":326856704,"max_allocated":326856704,"peak":326856704,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":66,"allocated":326856704,"max_allocated":326856704,"peak":326856704,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":66,"allocated":326852608,"max_allocated":326856704,"peak":326856704,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":66,"allocated":326856704,"max_allocated":326868992,"peak":326868992,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":67,"allocated":326856704,"max_allocated":326868992,"peak":326856704,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":67,"allocated":326856704,"max_allocated":326868992,"peak":326856704,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":67,"allocated":326856704,"max_allocated":326868992,"peak":326856704,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":67,"allocated":326860800,"max_allocated":326873088,"peak":326873088,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":[],"graphs":[{"names":["primals_1","primals_2","primals_3","primals_4","primals_5","primals_6","tangents_1","t","addmm","gelu","t_1","addmm_1","t_2","mm","t_3","mm_1","t_4","sum_1","view","t_5","gelu_backward","t_6","mm_2","t_7","sum_2","view_1","t_8"],"inputs":[[],[],[],[],[],[],[],[0],[1,3,7],[8],[4],[5,9,10],[10],[6,12],[6],[14,9],[15],[6],[17],[16],[13,8],[20],[21,3],[22],[20],[24],[23]],"storages":[[0],[1],[],[2],[3],[4],[5],[0],[6],[7],[3],[8],[3],[9],[5],[10],[10],[11],[11],[10],[12],[12],[13],[13],[14],[14],[13]],"sizes":[0,1,2,1,3,4,5,5,4,5,1,3,5,0,1],"formulas":["4096","256","64*batch","4","4*batch","256*batch"],"forward_outputs":[11],"backward_outputs":[26,25,19,18],"last_forward":11,"primals":[0,1,2,3,4,5],"tangents":[6],"constants":[],"symbols":[2],"getitems":[],"random":[],"updates":[],"checkpoints":[],"layers":[{"cluster_id":"Linear+","num_nodes":2,"recompute":[7],"keep":[8]},{"cluster_id":"Linear+","num_nodes":2,"recompute":[10],"keep":[11]}],"occurrences":[{"cluster_id":"addmm+","strategy":1,"nodes":[7,8]},{"cluster_id":"gelu+","strategy":1,"nodes":[9]}],"rng_state_bytes":5056,"always":[],"holds_tangents":false,"rng_state_elsewhere":false,"fixed":[],"elsewhere":[],"calls":1.0,"times_ns":[0,0,0,0,0,0,0,26109,89143,85137,11527,22204,18728,22563,2214,6380,2044,30796,18628,3105,88081,8523,19379,1994,18498,9284,2864],"batch_sizes":[2,4,8,16,32],"workspace":[],"growing":[]}],"calibration":{"torch":"2.13.0+cpu","device_name":"AMD EPYC","dtype":"float32","num_threads":1,"dimensions":{"batch":8},"error":0.0,"reason":"","engine":"aot","generated_share":null},"fork_refusal":"","per_sample":{},"undescribed":null,"accumulation_control":{"how":"none","steps":1,"reason":"nothing is known that sets it; where the script''s arguments take it, put {accumulation:4} there, with the script''s own number"},"epoch":{"samples":4096,"drops_last":false},"steps":{"in_pass":512.0,"passes":1,"epochs":null,"in_all":null},"outside":[],"traces":[{"calls":[0],"events":[0,-1],"stretches":[{"begin":32,"rise":76,"end":36,"gradients_begin":0,"gradients_end":-4612,"late_rise":68},{"begin":36,"rise":0,"end":0,"gradients_begin":-4612,"gradients_end":32,"late_rise":null}],"shared":[{"uses":[[0,8]],"born":0,"held_until":-1}],"unfinished":[],"gradients":4612,"results":32}]}','{"kind_of_answer":"baseline_best","winner":{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0},"reason":"Your baseline stays: batch 16 without plans may be faster than your baseline (0.062x to 71.603x); 3 rounds beside it do not tell. Other programs kept the machine busy in 6 of 6 measurements of these rounds: only a difference of 34.1x or more can be trusted.","stop_reason":"The model of this search expects no more than 21,173 samples/s of anything untried that fits; of the best, which was measured at 21,180, it expects 21,173.","memory_limit_bytes":21553127424,"comparisons":[{"configuration":{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0},"samples_per_s":23002.088806611064,"baseline_samples_per_s":11751.364656486341,"speedup":2.1013680880215895,"speedup_low":0.06167015087598801,"speedup_high":71.60267615098113,"peak_bytes":326365184,"baseline_peak_bytes":326340608,"peak_ratio":1.0000753149637878,"peak_ratio_low":null,"peak_ratio_high":null,"rounds":3,"found":"unresolved","found_fast":null}],"proofs":[],"needed_s":null}',1.79542601244791793818e+09,'0.1.0');
INSERT INTO "autotune_study" VALUES(2,2,'killed','{"script":"/home/user/project/train.py","arguments":[],"working_directory":"/home/user/project","python":"/usr/bin/python3","module":"","engine":"aot","memory_limit_bytes":null,"objective":{"goal":"throughput","max_slowdown":0.03,"target_memory_bytes":null},"time_budget_s":120.0,"max_trials":60,"own_batch_size":null,"batch_sizes":[8,16],"devices":[],"sampler":"model","seed":0,"start_timeout_s":300.0,"trial_timeout_s":120.0,"finalist_rounds":1,"plans_first":[],"choices":[],"keep_global_batch":false,"measuring":{"min_warmup_steps":2,"max_warmup_steps":12,"min_steps":5,"max_steps":60,"interval_ratio":0.01,"rough_interval_ratio":0.03,"fine_steps":24,"min_measure_s":0.5,"max_measure_s":10.0,"rate_to_beat":null},"leaves_files":false}','{"baseline":{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0},"batch_size":8,"batch_control":{"how":"loaders","loaders":[0],"sites":["114c2327ef28a145"],"reason":""},"clusters":[{"cluster_id":"addmm+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":0.0001240659985342063,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":"runs costly operators again"},{"cluster_id":"gelu+","strategy":1,"frequency":1,"saving_bytes":2048,"saving_formula":"256*batch","recompute_time_s":0.00010485600068932399,"calls_per_step":1.0,"is_layer":false,"is_indivisible":false,"excludes":[],"note":""}],"dimensions":{"batch":8},"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":4096},"roots":[{"name":"Sequential","num_parameters":1153,"num_trainable":1153,"num_graphs":1,"applied_by":"aot","wrapped_by":[]}],"optimizers":[{"name":"SGD","settings":{"lr":"0.01","momentum":"0","dampening":"0","weight_decay":"0","nesterov":"False","maximize":"False","foreach":"None","differentiable":"False","fused":"None"}}],"precision":{"parameters":"float32","autocast":null,"grad_scaler":false},"environment":{"device_kind":"cpu","device_name":"AMD EPYC","device_memory_bytes":25276514304,"num_devices":1,"num_threads":1,"hostname":"workstation","platform":"Linux-6.1-x86_64","python":"3.11.7","torch":"2.13.0+cpu","cuda":null,"driver":null,"variables":{"CUDA_VISIBLE_DEVICES":"","OMP_NUM_THREADS":"1"}},"calls_per_step":1.0,"script_sha256":"f0b8108abea4c0ed8bf946cec5a38d2c60c0af3d36139bf26a2d4a302710e1cd","memory_matrix":[{"phase":"pre_forward","step":65,"allocated":326889472,"max_allocated":326889472,"peak":326889472,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":65,"allocated":326889472,"max_allocated":326893568,"peak":326893568,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":65,"allocated":326889472,"max_allocated":326893568,"peak":326893568,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":65,"allocated":326905856,"max_allocated":326914048,"peak":326914048,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":66,"allocated":326905856,"max_allocated":326914048,"peak":326909952,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":66,"allocated":326905856,"max_allocated":326914048,"peak":326909952,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":66,"allocated":326905856,"max_allocated":326914048,"peak":326909952,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":66,"allocated":326909952,"max_allocated":326922240,"peak":326922240,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":[],"graphs":[{"names":["primals_1","primals_2","primals_3","primals_4","primals_5","primals_6","tangents_1","t","addmm","gelu","t_1","addmm_1","t_2","mm","t_3","mm_1","t_4","sum_1","view","t_5","gelu_backward","t_6","mm_2","t_7","sum_2","view_1","t_8"],"inputs":[[],[],[],[],[],[],[],[0],[1,3,7],[8],[4],[5,9,10],[10],[6,12],[6],[14,9],[15],[6],[17],[16],[13,8],[20],[21,3],[22],[20],[24],[23]],"storages":[[0],[1],[],[2],[3],[4],[5],[0],[6],[7],[3],[8],[3],[9],[5],[10],[10],[11],[11],[10],[12],[12],[13],[13],[14],[14],[13]],"sizes":[0,1,2,1,3,4,5,5,4,5,1,3,5,0,1],"formulas":["4096","256","64*batch","4","4*batch","256*batch"],"forward_outputs":[11],"backward_outputs":[26,25,19,18],"last_forward":11,"primals":[0,1,2,3,4,5],"tangents":[6],"constants":[],"symbols":[2],"getitems":[],"random":[],"updates":[],"checkpoints":[],"layers":[{"cluster_id":"Linear+","num_nodes":2,"recompute":[7],"keep":[8]},{"cluster_id":"Linear+","num_nodes":2,"recompute":[10],"keep":[11]}],"occurrences":[{"cluster_id":"addmm+","strategy":1,"nodes":[7,8]},{"cluster_id":"gelu+","strategy":1,"nodes":[9]}],"rng_state_bytes":5056,"always":[],"holds_tangents":false,"rng_state_elsewhere":false,"fixed":[],"elsewhere":[],"calls":1.0,"times_ns":[0,0,0,0,0,0,0,28423,95643,104856,9413,17616,21371,25337,3424,7381,2784,37735,23123,4687,105687,6879,22793,2974,22172,10585,3996],"batch_sizes":[2,4,8,16,32],"workspace":[],"growing":[]}],"calibration":{"torch":"2.13.0+cpu","device_name":"AMD EPYC","dtype":"float32","num_threads":1,"dimensions":{"batch":8},"error":0.0,"reason":"","engine":"aot","generated_share":null},"fork_refusal":"","per_sample":{},"undescribed":null,"accumulation_control":{"how":"none","steps":1,"reason":"nothing is known that sets it; where the script''s arguments take it, put {accumulation:4} there, with the script''s own number"},"epoch":{"samples":4096,"drops_last":false},"steps":{"in_pass":512.0,"passes":1,"epochs":null,"in_all":null},"outside":[],"traces":[{"calls":[0],"events":[0,-1],"stretches":[{"begin":32,"rise":76,"end":36,"gradients_begin":0,"gradients_end":-4612,"late_rise":68},{"begin":36,"rise":0,"end":0,"gradients_begin":-4612,"gradients_end":32,"late_rise":null}],"shared":[{"uses":[[0,8]],"born":0,"held_until":-1}],"unfinished":[],"gradients":4612,"results":32}]}',NULL,1.79542612908425736431e+09,'0.1.0');
CREATE TABLE autotune_trial (
	id INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	optuna_trial_id INTEGER NOT NULL, 
	owner_id INTEGER NOT NULL, 
	configuration TEXT, 
	state VARCHAR(16) NOT NULL, 
	recovered BOOLEAN NOT NULL, 
	told BOOLEAN NOT NULL, 
	run_directory TEXT NOT NULL, 
	started_at DOUBLE NOT NULL, 
	finished_at DOUBLE, 
	kind VARCHAR(32), 
	samples_per_s DOUBLE, 
	peak_bytes BIGINT, 
	outcome TEXT, 
	environment_id INTEGER, 
	CONSTRAINT pk_autotune_trial PRIMARY KEY (id), 
	CONSTRAINT fk_autotune_trial_study_id_autotune_study FOREIGN KEY(study_id) REFERENCES autotune_study (id), 
	CONSTRAINT fk_autotune_trial_owner_id_autotune_owner FOREIGN KEY(owner_id) REFERENCES autotune_owner (id), 
	CONSTRAINT fk_autotune_trial_environment_id_autotune_environment FOREIGN KEY(environment_id) REFERENCES autotune_environment (id), 
	CONSTRAINT uq_autotune_trial_study_id_number UNIQUE (study_id, number)
);
INSERT INTO "autotune_trial" VALUES(1,1,0,1,1,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0}','finished',0,1,'/home/user/project/.autotune/runs/ended/discovery',1.79542601817477273946e+09,1.79542603011485195157e+09,'measured',4.87607902297199598262e+03,326242304,'{"kind":"measured","measurement":{"step_times_s":[0.012144707994593773,0.004219641006784514,0.0068548159979400225,0.006458748997829389,0.001792563998606056,0.0009612280045985244,0.009734125997056253,0.0015461770017282106,0.0012876039982074872,0.007865578998462297,0.010347267001634464,0.0013603109982796013,0.006805324002925772,0.007378745001915377,0.0015299539954867214,0.001920793998579029,0.0010269860067637637,0.0010205369981122203,0.009540487997583114,0.0017351479982607998,0.0011034199997084215,0.005764006004028488,0.004240461996232625,0.001138201005232986,0.0010303210001438856,0.00905834199511446,0.0009167120006168261,0.0006332109987852164,0.0006285540002863854,0.0009356200025649741,0.007159460001275875,0.00811338699713815,0.00792003999958979,0.005237714001850691,0.004354491000412963,0.001845712999056559,0.0011925819999305531,0.009211008000420406,0.0013696149981115013,0.01770109600329306,0.0013602309991256334,0.000881480002135504,0.000838936997752171,0.0008686709988978691,0.009914043002936523,0.0011352569999871776,0.001136799000960309,0.0008925369984353893,0.0008558510016882792,0.003020338997885119,0.0038177030000952072,0.000757907000661362,0.0006145430015749298,0.006906152993906289,0.0013702860014745966,0.0008933979988796636,0.005285835002723616,0.0014812509980401956,0.0026700180023908615,0.001027186997816898],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326242304},"warmup_steps":6,"warmup_s":0.031700068997452036,"batch_size":8,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.6212133098298348,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[{"phase":"pre_forward","step":66,"allocated":326856704,"max_allocated":326856704,"peak":326856704,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":66,"allocated":326856704,"max_allocated":326856704,"peak":326856704,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":66,"allocated":326852608,"max_allocated":326856704,"peak":326856704,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":66,"allocated":326856704,"max_allocated":326868992,"peak":326868992,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":67,"allocated":326856704,"max_allocated":326868992,"peak":326856704,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":67,"allocated":326856704,"max_allocated":326868992,"peak":326856704,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":67,"allocated":326856704,"max_allocated":326868992,"peak":326856704,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":67,"allocated":326860800,"max_allocated":326873088,"peak":326873088,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":["steps are uneven: the mean step takes 2.22x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(2,1,1,2,1,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0}','finished',0,1,'/home/user/project/.autotune/runs/ended/trial-0001',1.79542603278352713583e+09,1.79542603819332647328e+09,'measured',2.11803408019684138714e+04,326205440,'{"kind":"measured","measurement":{"step_times_s":[0.008788791004917584,0.0006968059969949536,0.0005839470031787641,0.0005569380009546876,0.0111166599963326,0.00080057999730343,0.0005957450048299506,0.0005623459946946241,0.0005655910063069314,0.012602457994944416,0.004029478004667908,0.0007823729974916205,0.0005868220032425597,0.012733081995975226,0.00508867199823726,0.005928730999585241,0.008171113004209474,0.0008312450008816086,0.0005953949948889203,0.0006428350025089458,0.010712640003475826,0.00757715999498032,0.0009230620053131133,0.00068828299845336,0.013888219000364188,0.0010030409976025112,0.0006401010032277554,0.0005721599954995327,0.009409172998857684,0.0007085530014592223,0.0005767170005128719,0.0005652100007864647,0.0005463819979922846,0.01653314899886027,0.0013340730001800694,0.0006340920008369721,0.0005683749986928888,0.0005583900056080893,0.0006324799978756346,0.018203792002168484,0.00071074599691201,0.0005851699970662594,0.0005610430016531609,0.013544829002057668,0.0006716679999954067,0.0005780990031780675,0.014212210997357033,0.0009190260025206953,0.000667581996822264,0.0005600919976131991,0.0006500560048152693,0.009480217995587736,0.005192998003622051,0.0012087759969290346,0.009184057998936623,0.012959649000549689,0.0014046780052012764,0.0007284619932761416,0.007278176002728287,0.0006781480042263865],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326205440},"warmup_steps":12,"warmup_s":0.07286287000169978,"batch_size":16,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.7659977738820214,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["step times had not settled after 12 warm-up steps","steps are uneven: the mean step takes 5.20x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(3,2,0,3,2,'{"engine":"eager","plans":[],"level":0,"batch_size":8,"choices":[],"accumulation":0}','finished',0,1,'/home/user/project/.autotune/runs/killed/discovery',1.7954261371335282325e+09,1.79542615198125219341e+09,'measured',5.62351021690600828134e+03,326283264,'{"kind":"measured","measurement":{"step_times_s":[0.015383261001261417,0.0008791269938228652,0.009801786000025459,0.003770874005567748,0.0006730300010531209,0.000596435995248612,0.000631879003776703,0.0005867419968126342,0.010831006002263166,0.0008129880006890744,0.01077589399938006,0.004743148994748481,0.009218389001034666,0.0016236630035564303,0.0007218019964057021,0.0006943820044398308,0.0007107869969331659,0.009828244998061564,0.009242175001418218,0.00256075500510633,0.0009238029961124994,0.000687933003064245,0.011668159000691958,0.003785465996770654,0.0012482449965318665,0.0028711570048471913,0.0008754009977565147,0.007485073001589626,0.0072058680016198196,0.0016399070009356365,0.015637348995369393,0.001508150999143254,0.0008782950026215985,0.0006703059989376925,0.000581054002395831,0.0006303469999693334,0.01940165199630428,0.005234538999502547,0.0013931900030001998,0.007748634998279158,0.0010515930043766275,0.0007707459953962825,0.010066740003821906,0.004373147996375337,0.007386967998172622,0.000988129002507776,0.0006486330021289177,0.0006500259987660684,0.01348485000198707,0.0014152829971862957,0.00101021199952811,0.009570481997798197,0.0010432600029162131,0.0007295850009541027,0.0006333609999273904,0.012985287001356483,0.0014299149988801219,0.000817624997580424,0.0008275500003946945,0.01361366100172745],"samples_per_step":[8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8,8],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326283264},"warmup_steps":5,"warmup_s":0.011319001001538709,"batch_size":8,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.733550234736309,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[{"phase":"pre_forward","step":65,"allocated":326889472,"max_allocated":326889472,"peak":326889472,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":65,"allocated":326889472,"max_allocated":326893568,"peak":326893568,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":65,"allocated":326889472,"max_allocated":326893568,"peak":326893568,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":65,"allocated":326905856,"max_allocated":326914048,"peak":326914048,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_forward","step":66,"allocated":326905856,"max_allocated":326914048,"peak":326909952,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_forward","step":66,"allocated":326905856,"max_allocated":326914048,"peak":326909952,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"pre_backward","step":66,"allocated":326905856,"max_allocated":326914048,"peak":326909952,"parameters":4612,"gradients":0,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0},{"phase":"post_backward","step":66,"allocated":326909952,"max_allocated":326922240,"peak":326922240,"parameters":4612,"gradients":4612,"buffers":0,"cached":null,"max_cached":null,"inactive":null,"max_inactive":null,"rank":0}],"notes":["steps are uneven: the mean step takes 3.14x the median (evaluation or logging inside?)"]}}',1);
INSERT INTO "autotune_trial" VALUES(4,2,1,4,2,'{"engine":"eager","plans":[],"level":0,"batch_size":16,"choices":[],"accumulation":0}','finished',0,1,'/home/user/project/.autotune/runs/killed/trial-0001',1.79542615344026970864e+09,1.79542615942472839354e+09,'measured',1.84984164751312528092e+03,326258688,'{"kind":"measured","measurement":{"step_times_s":[0.01467285500257276,0.0017708710001897998,0.013605809996079188,0.002086389999021776,0.007617080002091825,0.0012266729972907342,0.0009156910018646158,0.018265003003762104,0.02721604499674868,0.001478397003666032,0.0011663529949146323,0.015350271998613607,0.009175175000564195,0.0017317640013061464,0.01835472600214416,0.012174762996437494,0.008803553006146103,0.014421941996261012,0.006696942000417039,0.026571918002446182,0.011309857996820938,0.007296643001609482,0.007214992001536302,0.008495224996295292,0.0018085070041706786,0.013612479000585154,0.004921854997519404,0.005178275001526345,0.0011893679984495975,0.0169590919977054,0.0024253439987660386,0.0010979319995385595,0.013526552000257652,0.0016981330045382492,0.008925713998905849,0.009096829002373852,0.005644297998514958,0.0011991020001005381,0.01873347899527289,0.015402185003040358,0.0020014940018882044,0.01849633699748665,0.010353826997743454,0.02498182500130497,0.0019346050030435435,0.001260343000467401,0.010588264995021746,0.011232843004108872,0.01197583699831739,0.012317965003603604,0.010213317997113336,0.005883913996513002,0.0010459240002091974,0.009539026003039908,0.0015475199979846366,0.001064462005160749,0.015018908998172265,0.005788121001387481,0.014252610999392346,0.005512561998330057],"samples_per_step":[16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16],"peaks":{"device":null,"allocated":null,"reserved":null,"non_torch":null,"resident":326258688},"warmup_steps":12,"warmup_s":0.13466329099901486,"batch_size":16,"calls_per_step":1.0,"backwards_per_step":1.0,"num_processes":1,"samples_are_guessed":false,"nonfinite_loss":false,"allocator_retries":0,"contended":true,"waited_share":0.761178334046849,"split":{"parameters":4612,"gradients":4612,"optimizer_state":0,"buffers":0,"activations":null},"saved_bytes":null,"memory_matrix":[],"notes":["step times had not settled after 12 warm-up steps"]}}',1);
INSERT INTO "autotune_trial" VALUES(5,2,2,5,2,'{"engine":"aot","plans":[{"cluster_id":"addmm+","strategy":1,"count":-1}],"level":0,"batch_size":8,"choices":[],"accumulation":0}','running',0,0,'/home/user/project/.autotune/runs/killed/trial-0002',1.79542616229508137704e+09,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "autotune_trial" VALUES(6,2,3,6,2,'{"engine":"aot","plans":[{"cluster_id":"gelu+","strategy":1,"count":-1}],"level":0,"batch_size":8,"choices":[],"accumulation":0}','running',0,0,'/home/user/project/.autotune/runs/killed/trial-0002',1.79542616230944132799e+09,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE studies (
	study_id INTEGER NOT NULL, 
	study_name VARCHAR(512) NOT NULL, 
	PRIMARY KEY (study_id)
);
INSERT INTO "studies" VALUES(1,'ended');
INSERT INTO "studies" VALUES(2,'killed');
CREATE TABLE study_directions (
	study_direction_id INTEGER NOT NULL, 
	direction VARCHAR(8) NOT NULL, 
	study_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	PRIMARY KEY (study_direction_id), 
	UNIQUE (study_id, objective), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_directions" VALUES(1,'MAXIMIZE',1,0);
INSERT INTO "study_directions" VALUES(2,'MINIMIZE',1,1);
INSERT INTO "study_directions" VALUES(3,'MAXIMIZE',2,0);
INSERT INTO "study_directions" VALUES(4,'MINIMIZE',2,1);
CREATE TABLE study_system_attributes (
	study_system_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_system_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "study_system_attributes" VALUES(1,1,'study:metric_names','["samples_per_s", "peak_bytes"]');
INSERT INTO "study_system_attributes" VALUES(2,2,'study:metric_names','["samples_per_s", "peak_bytes"]');
CREATE TABLE study_user_attributes (
	study_user_attribute_id INTEGER NOT NULL, 
	study_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (study_user_attribute_id), 
	UNIQUE (study_id, "key"), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
CREATE TABLE trial_heartbeats (
	trial_heartbeat_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	heartbeat DATETIME NOT NULL, 
	PRIMARY KEY (trial_heartbeat_id), 
	UNIQUE (trial_id), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_intermediate_values (
	trial_intermediate_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	intermediate_value FLOAT, 
	intermediate_value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_intermediate_value_id), 
	UNIQUE (trial_id, step), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
CREATE TABLE trial_params (
	param_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	param_name VARCHAR(512), 
	param_value FLOAT, 
	distribution_json TEXT, 
	PRIMARY KEY (param_id), 
	UNIQUE (trial_id, param_name), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_params" VALUES(1,1,'batch_size',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(2,1,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(3,1,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(4,2,'batch_size',16.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(5,2,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(6,2,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(7,3,'batch_size',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(8,3,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(9,3,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(10,4,'batch_size',16.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(11,4,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(12,4,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(13,5,'batch_size',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(14,5,'addmm+',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(15,5,'gelu+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(16,6,'batch_size',8.0,'{"name": "IntDistribution", "attributes": {"log": true, "step": 1, "low": 8, "high": 16}}');
INSERT INTO "trial_params" VALUES(17,6,'addmm+',0.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
INSERT INTO "trial_params" VALUES(18,6,'gelu+',1.0,'{"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 0, "high": 1}}');
CREATE TABLE trial_system_attributes (
	trial_system_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_system_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_system_attributes" VALUES(1,1,'constraints:memory','-0.9848633426796002');
INSERT INTO "trial_system_attributes" VALUES(2,2,'constraints:memory','-0.9848650530578332');
INSERT INTO "trial_system_attributes" VALUES(3,3,'constraints:memory','-0.9844470936825434');
INSERT INTO "trial_system_attributes" VALUES(4,4,'constraints:memory','-0.9844482651438711');
CREATE TABLE trial_user_attributes (
	trial_user_attribute_id INTEGER NOT NULL, 
	trial_id INTEGER, 
	"key" VARCHAR(512), 
	value_json TEXT, 
	PRIMARY KEY (trial_user_attribute_id), 
	UNIQUE (trial_id, "key"), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_user_attributes" VALUES(1,1,'origin','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(2,1,'configuration','"batch 8, no plans"');
INSERT INTO "trial_user_attributes" VALUES(3,1,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(4,2,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(5,2,'configuration','"batch 16, no plans"');
INSERT INTO "trial_user_attributes" VALUES(6,2,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(7,2,'device','"AMD EPYC"');
INSERT INTO "trial_user_attributes" VALUES(8,3,'origin','"baseline"');
INSERT INTO "trial_user_attributes" VALUES(9,3,'configuration','"batch 8, no plans"');
INSERT INTO "trial_user_attributes" VALUES(10,3,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(11,4,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(12,4,'configuration','"batch 16, no plans"');
INSERT INTO "trial_user_attributes" VALUES(13,4,'outcome','"measured"');
INSERT INTO "trial_user_attributes" VALUES(14,4,'device','"AMD EPYC"');
INSERT INTO "trial_user_attributes" VALUES(15,5,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(16,5,'configuration','"batch 8, addmm+:1:-1"');
INSERT INTO "trial_user_attributes" VALUES(17,6,'origin','"sampler"');
INSERT INTO "trial_user_attributes" VALUES(18,6,'configuration','"batch 8, gelu+:1:-1"');
CREATE TABLE trial_values (
	trial_value_id INTEGER NOT NULL, 
	trial_id INTEGER NOT NULL, 
	objective INTEGER NOT NULL, 
	value FLOAT, 
	value_type VARCHAR(7) NOT NULL, 
	PRIMARY KEY (trial_value_id), 
	UNIQUE (trial_id, objective), 
	FOREIGN KEY(trial_id) REFERENCES trials (trial_id)
);
INSERT INTO "trial_values" VALUES(1,1,0,4.87607902297199598262e+03,'FINITE');
INSERT INTO "trial_values" VALUES(2,1,1,326242304.0,'FINITE');
INSERT INTO "trial_values" VALUES(3,2,0,2.11803408019684138714e+04,'FINITE');
INSERT INTO "trial_values" VALUES(4,2,1,326205440.0,'FINITE');
INSERT INTO "trial_values" VALUES(5,3,0,5.62351021690600828134e+03,'FINITE');
INSERT INTO "trial_values" VALUES(6,3,1,326283264.0,'FINITE');
INSERT INTO "trial_values" VALUES(7,4,0,1.84984164751312528092e+03,'FINITE');
INSERT INTO "trial_values" VALUES(8,4,1,326258688.0,'FINITE');
CREATE TABLE trials (
	trial_id INTEGER NOT NULL, 
	number INTEGER, 
	study_id INTEGER, 
	state VARCHAR(8) NOT NULL, 
	datetime_start DATETIME, 
	datetime_complete DATETIME, 
	PRIMARY KEY (trial_id), 
	FOREIGN KEY(study_id) REFERENCES studies (study_id)
);
INSERT INTO "trials" VALUES(1,0,1,'COMPLETE','2026-11-23 09:27:09.540274','2026-11-23 09:27:09.540274');
INSERT INTO "trials" VALUES(2,1,1,'COMPLETE','2026-11-23 09:27:12.507547','2026-11-23 09:27:18.705267');
INSERT INTO "trials" VALUES(3,0,2,'COMPLETE','2026-11-23 09:29:11.657952','2026-11-23 09:29:11.657952');
INSERT INTO "trials" VALUES(4,1,2,'COMPLETE','2026-11-23 09:29:13.209688','2026-11-23 09:29:19.996740');
INSERT INTO "trials" VALUES(5,2,2,'RUNNING','2026-11-23 09:29:21.381106',NULL);
INSERT INTO "trials" VALUES(6,3,2,'RUNNING','2026-11-23 09:29:21.827419',NULL);
CREATE TABLE version_info (
	version_info_id INTEGER NOT NULL, 
	schema_version INTEGER, 
	library_version VARCHAR(256), 
	PRIMARY KEY (version_info_id), 
	CHECK (version_info_id=1)
);
INSERT INTO "version_info" VALUES(1,12,'5.0.0');
CREATE INDEX ix_autotune_repeat_study_id ON autotune_repeat (study_id);
CREATE INDEX ix_autotune_bundle_study_id ON autotune_bundle (study_id);
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE INDEX ix_trials_study_id ON trials (study_id);
COMMIT;
